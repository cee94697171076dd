"""Exercises in variants: the same question with other numbers for each seed, and its grader.

Each chapter with exercises has one: `ask` puts it into words, `check_answer` grades it, and `solve`
is the key for whoever asks. Those of layer norm, DeepNorm and the checks are on the interview page,
each with functions of its own.
"""

from __future__ import annotations

from normlab.book.exercises.grading import Answer, Grading, grader
from normlab.book.exercises.variants.by_hand import (
    INTERVIEW,
    WRONG_LAYERS,
    AskedByHand,
    check_by_hand,
    check_constants,
    check_diagnosis,
    make_depths,
    make_table,
    make_wrong_layer,
)
from normlab.book.exercises.variants.formulas import FORMULAS
from normlab.book.exercises.variants.layers import LAYERS
from normlab.book.exercises.variants.variant import Variant

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

_QUESTIONS: dict[str, Variant | AskedByHand] = {**FORMULAS, **LAYERS, **INTERVIEW}
CHAPTERS = tuple(_QUESTIONS)


def _question(chapter: str) -> Variant | AskedByHand:
    if chapter not in CHAPTERS:
        raise ValueError(
            f"chapter: got {chapter!r}; expected one of {', '.join(CHAPTERS)}; the page of claims "
            "has no exercises, and the interview page has those of three chapters"
        )
    return _QUESTIONS[chapter]


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
    return _question(chapter).ask(seed)


def solve(chapter: str, seed: int) -> tuple[float, ...] | str:
    """The right answer to `ask(chapter, seed)`.

    Args:
        chapter: name of its file, one of `CHAPTERS`.
        seed: of the variant.

    Raises:
        ValueError: the chapter has no such exercise.
    """
    return _question(chapter).solve(seed)


@grader
def check_answer(answer: Answer, *, chapter: str, seed: int) -> Grading:
    """Grade `answer()`, which returns a tuple: what `ask(chapter, seed)` asks for, in its order.

    Args:
        answer: the reader's function.
        chapter: name of its file, one of `CHAPTERS`.
        seed: of the variant.
    """
    yield from _question(chapter).grade(answer, seed=seed)
