"""The question with a seed of the chapter on fast norms."""

from __future__ import annotations

from normlab.exercises.variants.variant import Variant


def _fast_norms(
    rows: int, features: int, width: int, speed: int, *, passes: int = 5
) -> tuple[float, float]:
    """Megabytes that a fused norm moves, and the milliseconds that they take."""
    megabytes = passes * rows * features * width / 1e6
    return megabytes, megabytes / speed


FAST_NORMS = Variant(
    question=(
        "A fused norm of {rows} rows of {features} values with {width} bytes each runs forward and "
        "backward. How many megabytes (a million bytes) must it move at least, without weight and "
        "statistics? How many milliseconds is that at {speed} gigabytes a second?"
    ),
    draw=lambda rng: {
        "rows": 1000 * int(rng.integers(2, 20)),
        "features": 100 * int(rng.integers(3, 30)),
        "width": int(rng.choice([2, 4])),
        "speed": int(rng.integers(8, 40)),
    },
    solve=_fast_norms,
    mistakes={
        "that is forward alone: x and y": lambda **drawn: _fast_norms(**drawn, passes=2),
        "that is backward alone: x, dy and dx": lambda **drawn: _fast_norms(**drawn, passes=3),
        "backward reads the input, too": lambda **drawn: _fast_norms(**drawn, passes=4),
        "the output is not read in backward: x is": lambda **drawn: _fast_norms(**drawn, passes=6),
    },
)
