"""A question with numbers, drawn so that each known mistake shows as itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from normlab.book.exercises.grading import Answer, Grading, Question

Numbers = tuple[float, ...]
# the right answer, and sentence about a mistake -> the answer that it gives
Answers = tuple[Numbers, dict[str, Numbers]]
TRIES = 1000


@dataclass(frozen=True)
class Variant:
    """One question, whose numbers come from a seed."""

    question: str  #: text with the names of the drawn numbers in braces
    draw: Callable[[np.random.Generator], dict[str, Any]]  #: the numbers by name
    answers: Callable[..., Answers]  #: called with them
    #: largest difference allowed, relative to the number. Three digits are off by less than the
    #: default.
    tolerance: float = 0.01
    #: least relative difference, in some number, between any two of these answers
    apart: float = 0.04

    def numbers(self, seed: int) -> dict[str, Any]:
        """The first numbers of this seed whose answers can all be told apart.

        Raises:
            ValueError: a mistake gives the right answer, or that of another, whatever is drawn.
        """
        rng = np.random.default_rng(seed)
        for _ in range(TRIES):
            drawn = self.draw(rng)
            right, wrong = self.answers(**drawn)
            if all(_differ(a, b, self.apart) for a, b in combinations([right, *wrong.values()], 2)):
                return drawn
        raise ValueError(
            f"mistakes: in {TRIES} draws two answers were never further than {self.apart} apart; "
            "leave out the mistake that is none"
        )

    def ask(self, seed: int) -> str:
        """The question in words."""
        digits = " Three digits suffice." if self.tolerance > 1e-3 else ""
        return self.question.format(**self.numbers(seed)) + digits

    def solve(self, seed: int) -> Numbers:
        """The right answer."""
        return self.answers(**self.numbers(seed))[0]

    def grade(self, answer: Answer, *, seed: int) -> Grading:
        """Put the question to an answer without arguments."""
        right, wrong = self.answers(**self.numbers(seed))
        yield Question((), right, wrong, tolerance=self.tolerance)


def _differ(a: Numbers, b: Numbers, apart: float) -> bool:
    return any(abs(x - y) > apart * max(abs(x), abs(y)) for x, y in zip(a, b, strict=True))
