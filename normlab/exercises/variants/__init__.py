"""Exercises in variants: the same question with other numbers for each seed, and its grader.

Each chapter with exercises has one: `ask` puts it into words, `check_answer` grades it, and `solve`
is the key for whoever asks. Those of layer norm, DeepNorm and the checks are on the interview page,
each with functions of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from normlab.exercises.grading import Answer, Grading, Question, grader
from normlab.exercises.variants.by_hand import (
    WRONG_LAYERS,
    check_by_hand,
    check_constants,
    check_diagnosis,
    make_depths,
    make_table,
    make_wrong_layer,
    right_constants,
    right_diagnosis,
    right_values,
)
from normlab.exercises.variants.formulas import FORMULAS
from normlab.exercises.variants.layers import LAYERS

__all__ = [
    "CHAPTERS",
    "WRONG_LAYERS",
    "ask",
    "check_answer",
    "check_by_hand",
    "check_constants",
    "check_diagnosis",
    "make_depths",
    "make_table",
    "make_wrong_layer",
    "solve",
]

_VARIANTS = FORMULAS | LAYERS
Right = tuple[float, ...] | str
# chapter -> question, answer, check
_INTERVIEW: dict[str, tuple[Callable[[int], str], Callable[[int], Right], Callable[..., str]]] = {
    "layer_norm": (
        lambda seed: (
            f"The samples {', '.join(map(str, make_table(seed)))} are the rows of a batch. What "
            "becomes of the first entry of the first row under layer norm, batch norm and RMS "
            "norm? Weight 1, bias 0, eps 0, two decimals."
        ),
        right_values,
        check_by_hand,
    ),
    "deep_norm": (
        lambda seed: (
            "An encoder of {} and a decoder of {} layers get DeepNorm. What are alpha and beta of "
            "the encoder, then of the decoder? Three decimals."
        ).format(*make_depths(seed)),
        right_constants,
        check_constants,
    ),
    "checks": (
        lambda seed: (
            f"variants.make_wrong_layer({seed}) is a layer norm with one mistake. Probe it, and "
            f"name the mistake: {', '.join(WRONG_LAYERS)}."
        ),
        right_diagnosis,
        check_diagnosis,
    ),
}
CHAPTERS = (*_VARIANTS, *_INTERVIEW)


def _require(chapter: str) -> None:
    if chapter not in CHAPTERS:
        raise ValueError(
            f"chapter: got {chapter!r}; expected one of {', '.join(CHAPTERS)}; the page of claims "
            "has no exercises, and the interview page has those of three chapters"
        )


def ask(chapter: str, seed: int) -> str:
    """The question of a chapter, in words, with the numbers of a seed.

    Args:
        chapter: name of its file, one of `CHAPTERS`.
        seed: of the variant.

    Raises:
        ValueError: the chapter has no such exercise.

    Example:
        >>> ask("paper_experiments", seed=17)[:27]
        'A negative bound falls from'
    """
    _require(chapter)
    return _INTERVIEW[chapter][0](seed) if chapter in _INTERVIEW else _VARIANTS[chapter].ask(seed)


def solve(chapter: str, seed: int) -> Right:
    """The right answer to `ask(chapter, seed)`.

    Args:
        chapter: name of its file, one of `CHAPTERS`.
        seed: of the variant.

    Raises:
        ValueError: the chapter has no such exercise.
    """
    _require(chapter)
    if chapter in _INTERVIEW:
        return _INTERVIEW[chapter][1](seed)
    return _VARIANTS[chapter].right(seed)


@grader
def check_answer(answer: Answer, *, chapter: str, seed: int) -> Grading:
    """Grade `answer()`, which returns a tuple: what `ask(chapter, seed)` asks for, in its order.

    Args:
        answer: the reader's function.
        chapter: name of its file, one of `CHAPTERS`.
        seed: of the variant.
    """
    _require(chapter)
    if chapter in _INTERVIEW:
        said = _INTERVIEW[chapter][2](answer, seed=seed)
        yield said.removeprefix("wrong: ") if said != "right" else ""
        return
    variant = _VARIANTS[chapter]
    mistakes = variant.wrong(seed)
    yield Question((), variant.right(seed), mistakes, tolerance=variant.tolerance)
