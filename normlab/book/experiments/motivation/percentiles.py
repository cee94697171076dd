"""How does the input of one sigmoid move while a network trains, each at its best rate?"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt

from normlab.book.experiments.motivation.shifting_inputs import summarize, train_and_watch
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import check_every

Group = Literal["none", "batch_norm"]


def first_solved(losses: list[float], below: float = 0.5) -> int | None:
    """First step whose last ten losses average below a number; None if there is none."""
    ends = range(10, len(losses) + 1)
    return next((i for i in ends if sum(losses[i - 10 : i]) < 10 * below), None)


@experiment(
    group=("none", "batch_norm"),
    lr=(0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    seed=range(5),
    condition=check_every,
)
def percentiles(
    group: Group,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Steps = 1000,
    every: PositiveInt = 20,
) -> dict[str, Any]:
    """Train a network of three hidden layers of 100 sigmoids on digits, and watch one unit.

    Args:
        group: the plain network, or one with a batch norm before each sigmoid.
        lr: of SGD without momentum, in batches of 60.

    Returns:
        steps_to_solve: first step whose last ten losses average below 0.5, or None.
        steps: of the looks; the first is 0, before training.
        accuracy: on the 500 test digits at each look, in eval mode.
        percentiles: (3, looks): 15th, 50th and 85th of the unit's input, over 500 digits.
    """
    watched = train_and_watch(
        group,
        seed,
        activation="sigmoid",
        depth=3,
        lr=lr,
        momentum=0.0,
        batch_size=60,
        steps=steps,
        every=every,
    )
    return {
        "steps_to_solve": first_solved(watched.losses),
        "steps": list(range(0, every * len(watched.accuracy), every)),
        "accuracy": [rounded(a) for a in watched.accuracy],
        "percentiles": summarize(watched.looks, "sigmoid")["percentiles"],
    }
