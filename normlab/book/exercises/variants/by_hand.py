"""Three questions of the interview page: norms by hand, constants, and a wrong layer to name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, as_array, grader
from normlab.checks.mistakes import MISTAKES
from normlab.checks.mutants import LAYER_NORM_MUTANTS, LAYER_NORM_NAMES
from normlab.residual import deep_norm_constants

# Rounded to two decimals an answer is off by 0.005 at most, and by less than TOLERANCE of itself;
# those of two mistakes, or of one and the right one, are further APART.
SMALLEST, TOLERANCE, APART = 0.3, 0.025, 0.06
TWO_DECIMALS = 0.0100001  # so much is lost where the rest is cut off

# name -> what it takes to see it
WRONG_LAYERS = {
    name: MISTAKES[LAYER_NORM_NAMES[name]].shows_on
    for name in (
        "eps_outside",
        "bessel_corrected",
        "uncentered_numerator",
        "wrong_axis",
        "detached_statistics",
        "backward_without_mean_term",
        "weight_after_projection",
    )
}


def _values(table: np.ndarray) -> dict[str, tuple[float, float, float]]:
    """The right answer under "", then those of the mistakes: layer, batch and RMS norm."""

    def norm(x: np.ndarray, correction: int = 0) -> float:
        return float((x[0] - x.mean()) / x.std(ddof=correction))

    row, column = table[0], table[:, 0]
    layer, batch = norm(row), norm(column)
    rms = float(row[0] / np.sqrt((row**2).mean()))
    rms_column = float(column[0] / np.sqrt((column**2).mean()))
    return {
        "": (layer, batch, rms),
        "layer norm takes the row and batch norm the column": (batch, layer, rms),
        "the divisor of the variance is n, not n - 1": (norm(row, 1), norm(column, 1), rms),
        "divide by the standard deviation, not by the variance": (
            layer / float(row.std()),
            batch / float(column.std()),
            rms,
        ),
        "RMS norm subtracts nothing": (layer, batch, layer),
        "RMS norm takes the row, like layer norm": (layer, batch, rms_column),
    }


def make_table(seed: int) -> list[list[int]]:
    """Three samples (rows) with four features, whole numbers; each known mistake shows as itself.

    Args:
        seed: of the variant.

    Example:
        >>> make_table(0) == make_table(0)
        True
    """
    rng = np.random.default_rng(seed)
    while True:
        table = rng.integers(0, 10, (3, 4))
        if table[0].std() == 0 or table[:, 0].std() == 0 or not table[:, 0].any():
            continue
        values = np.array(list(_values(table).values()))
        if np.abs(values).min() < SMALLEST:
            continue
        if all((np.abs(a / b - 1) > APART).any() for a, b in combinations(values, 2)):
            return [[int(x) for x in row] for row in table]


def right_values(seed: int) -> tuple[float, float, float]:
    """The first entry of `make_table(seed)` after layer, batch and RMS norm."""
    return _values(np.array(make_table(seed)))[""]


@grader
def check_by_hand(answer: Answer, *, seed: int) -> Grading:
    """Grade `answer() -> (layer, batch, rms)`: the first entry of `make_table(seed)` after each.

    Two decimals, rounded or cut off; eps is 0, weight 1, bias 0.

    Args:
        answer: the reader's function.
        seed: of the variant.
    """
    mistakes = _values(np.array(make_table(seed)))
    said, right = answer(), mistakes.pop("")
    yield Question((), right, mistakes, tolerance=TOLERANCE).judge(said)
    for place, (got, value) in enumerate(zip(as_array(said), right, strict=True), start=1):
        if Question((), value, tolerance=TWO_DECIMALS / abs(value)).judge(got):
            yield f"value {place} of 3 is close; two decimals are asked for"


def make_depths(seed: int) -> tuple[int, int]:
    """Layers of an encoder and of a decoder that is at least twice as deep.

    With equal depths, or a deeper encoder, exchanged constants could not be told apart.
    """
    rng = np.random.default_rng(seed)
    encoder = int(rng.integers(4, 49))
    return encoder, int(rng.integers(2 * encoder, 201))


def right_constants(seed: int) -> tuple[float, ...]:
    """DeepNorm's constants for `make_depths(seed)`: encoder, then decoder."""
    encoder, decoder = make_depths(seed)
    constants = deep_norm_constants(encoder_layers=encoder, decoder_layers=decoder)
    return tuple(c for c in constants if c is not None)


@grader
def check_constants(answer: Answer, *, seed: int) -> Grading:
    """Grade DeepNorm's constants for the encoder-decoder of `make_depths(seed)`.

    `answer() -> (encoder_alpha, encoder_beta, decoder_alpha, decoder_beta)`, to three decimals.

    Args:
        answer: the reader's function.
        seed: of the variant.

    Source:
        wang2022deepnet, Figure 2.
    """
    n, m = make_depths(seed)
    right = right_constants(seed)
    alone = ((2 * n) ** 0.25, (8 * n) ** -0.25, (2 * m) ** 0.25, (8 * m) ** -0.25)
    mistakes = {
        "encoder and decoder are exchanged": (*right[2:], *right[:2]),
        "those are the constants of a model with one stack only": alone,
        "N counts the layers of the encoder, M those of the decoder": tuple(
            deep_norm_constants(encoder_layers=m, decoder_layers=n)
        ),
        "alpha and beta are exchanged": (right[1], right[0], right[3], right[2]),
    }
    yield Question((), right, mistakes, tolerance=6e-3)


def make_wrong_layer(seed: int) -> Callable[..., Tensor]:
    """A layer norm with one mistake of `WRONG_LAYERS`, called like torch's function."""
    wrong = LAYER_NORM_MUTANTS[right_diagnosis(seed)]

    def layer(
        input: Tensor,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        return wrong(input, normalized_shape, weight, bias, eps)

    return layer


def right_diagnosis(seed: int) -> str:
    """The mistake of `make_wrong_layer(seed)`."""
    names = list(WRONG_LAYERS)
    return names[int(np.random.default_rng(seed).integers(len(names)))]


@grader
def check_diagnosis(answer: Answer, *, seed: int) -> Grading:
    """Grade `answer() -> name`, the mistake of `make_wrong_layer(seed)`.

    Args:
        answer: the reader's function; it returns a key of `WRONG_LAYERS`.
        seed: of the variant.

    Returns:
        "right", "not answered yet", or where to look.
    """
    name, mistake = answer(), right_diagnosis(seed)
    if not isinstance(name, str) or name not in WRONG_LAYERS:
        yield f"got {name!r}; expected one of {', '.join(WRONG_LAYERS)}"
    said, shows = WRONG_LAYERS[name], WRONG_LAYERS[mistake]
    if name == mistake:
        yield ""
    elif shows == "gradients" != said:
        yield "its outputs agree with torch's; look at the gradients"
    elif said != "gradients":
        yield f"that mistake shows on {said}; this layer differs from torch on {shows}"
    elif shows != "gradients":
        yield "its outputs already differ from torch's; look at them before the gradients"
    else:
        yield "that mistake gives other gradients; write down which term each one loses"


class AskedByHand(NamedTuple):
    """A question with functions of its own, called like those of a `Variant`."""

    ask: Callable[[int], str]
    solve: Callable[[int], tuple[float, ...] | str]
    grade: Callable[..., Grading]


INTERVIEW = {
    "layer_norm": AskedByHand(
        lambda seed: (
            f"The samples {', '.join(map(str, make_table(seed)))} are the rows of a batch. What "
            "becomes of the first entry of the first row under layer norm, batch norm and RMS "
            "norm? Weight 1, bias 0, eps 0, two decimals."
        ),
        right_values,
        inspect.unwrap(check_by_hand),
    ),
    "deep_norm": AskedByHand(
        lambda seed: (
            "An encoder of {} and a decoder of {} layers get DeepNorm. What are alpha and beta of "
            "the encoder, then of the decoder? Three decimals."
        ).format(*make_depths(seed)),
        right_constants,
        inspect.unwrap(check_constants),
    ),
    "checks": AskedByHand(
        lambda seed: (
            f"variants.make_wrong_layer({seed}) is a layer norm with one mistake. Probe it, and "
            f"name the mistake: {', '.join(WRONG_LAYERS)}."
        ),
        right_diagnosis,
        inspect.unwrap(check_diagnosis),
    ),
}
