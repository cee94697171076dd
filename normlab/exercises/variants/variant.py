"""A question with numbers, drawn so that each known mistake shows as itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

__all__ = ["Numbers", "Variant"]

Numbers = tuple[float, ...]
TRIES = 1000


@dataclass(frozen=True)
class Variant:
    """One question, whose numbers come from a seed.

    Attributes:
        question: text with the names of the drawn numbers in braces.
        draw: the numbers by name, from a random generator.
        solve: the right answer, called with them.
        mistakes: sentence about a mistake -> the answer that it gives, called likewise.
        tolerance: largest difference allowed, relative to the number. Three digits are off by
            less than the default.
        apart: least relative difference, in some number, between any two of these answers.
    """

    question: str
    draw: Callable[[np.random.Generator], dict[str, Any]]
    solve: Callable[..., Numbers]
    mistakes: Mapping[str, Callable[..., Numbers]]
    tolerance: float = 0.01
    apart: float = 0.04

    def numbers(self, seed: int) -> dict[str, Any]:
        """The first numbers of this seed whose answers can all be told apart.

        Raises:
            ValueError: a mistake gives the right answer, or that of another, whatever is drawn.
        """
        rng = np.random.default_rng(seed)
        for _ in range(TRIES):
            drawn = self.draw(rng)
            answers = [self.solve(**drawn), *(wrong(**drawn) for wrong in self.mistakes.values())]
            if all(_differ(a, b, self.apart) for a, b in combinations(answers, 2)):
                return drawn
        raise ValueError(
            f"mistakes: in {TRIES} draws two answers were never further than {self.apart} apart; "
            "leave out the mistake that is none"
        )

    def ask(self, seed: int) -> str:
        """The question in words."""
        digits = " Three digits suffice." if self.tolerance > 1e-3 else ""
        return self.question.format(**self.numbers(seed)) + digits

    def right(self, seed: int) -> Numbers:
        """The right answer."""
        return self.solve(**self.numbers(seed))

    def wrong(self, seed: int) -> dict[str, Numbers]:
        """The answer that each mistake gives."""
        drawn = self.numbers(seed)
        return {sentence: answer(**drawn) for sentence, answer in self.mistakes.items()}


def _differ(a: Numbers, b: Numbers, apart: float) -> bool:
    return any(abs(x - y) > apart * max(abs(x), abs(y)) for x, y in zip(a, b, strict=True))
