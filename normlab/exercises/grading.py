"""How an exercise is graded: cases with the right value and the values of known mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Case", "ask", "grade"]

UNANSWERED = "not answered yet"


@dataclass(frozen=True)
class Case:
    """One call of an answer.

    Attributes:
        args: what the answer is called with.
        expected: the right value: number, string, array, tensor, or a tuple of those.
        mistakes: sentence about a mistake -> the value that the mistake gives.
        hint: sentence for a wrong value that no known mistake explains.
        tolerance: largest difference allowed, relative to the largest expected magnitude.
    """

    args: tuple[Any, ...]
    expected: Any
    mistakes: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""
    tolerance: float = 1e-5


def _as_array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().to("cpu").double().numpy()
    return np.asarray(value, dtype=np.float64)


def _agrees(got: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, tuple):
        return (
            isinstance(got, tuple)
            and len(got) == len(expected)
            and all(_agrees(g, e, tolerance) for g, e in zip(got, expected, strict=True))
        )
    if isinstance(expected, str | bool) or expected is None:
        return type(got) is type(expected) and got == expected
    try:
        a, b = _as_array(got), _as_array(expected)
    except (TypeError, ValueError):
        return False
    if a.shape != b.shape:
        return False
    scale = float(np.abs(b).max(initial=0.0)) or 1.0
    return bool((np.abs(a - b) <= tolerance * scale).all())


def _shape_note(got: Any, expected: Any) -> str:
    if isinstance(expected, tuple) and not isinstance(got, tuple):
        return f"expected a tuple of {len(expected)} values, got {type(got).__name__}"
    try:
        if (
            not isinstance(expected, tuple | str)
            and _as_array(got).shape != _as_array(expected).shape
        ):
            return f"expected shape {_as_array(expected).shape}, got {_as_array(got).shape}"
    except (TypeError, ValueError):
        return f"expected {type(expected).__name__}, got {type(got).__name__}"
    return "the value is wrong"


def ask(answer: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """What a reader's function returns, and the verdict where it raises or returns None."""
    try:
        said = answer(*args)
    except Exception as error:  # a reader's function may fail in any way; say how
        return None, f"wrong: it raised {type(error).__name__}: {error}"
    return said, UNANSWERED if said is None else ""


def grade(answer: Callable[..., Any], cases: Iterable[Case]) -> str:
    """Call `answer` on each case and say in a sentence what came of it.

    Args:
        answer: the reader's function; a stub returns None.
        cases: tried in order; the first that fails is reported.

    Returns:
        "not answered yet", "right", or what is wrong. Never raises for a wrong answer: an
        exception of the answer becomes the sentence.

    Raises:
        ValueError: there is no case, so nothing was checked.
    """
    cases = list(cases)
    if not cases:
        raise ValueError("cases: got none; expected at least one, or nothing is checked")
    for case in cases:
        try:
            got = answer(*case.args)
        except Exception as error:  # a reader's function may fail in any way; say how
            return f"wrong: it raised {type(error).__name__}: {error}"
        if got is None and case.expected is not None:
            return UNANSWERED
        if _agrees(got, case.expected, case.tolerance):
            continue
        for sentence, value in case.mistakes.items():
            if _agrees(got, value, case.tolerance):
                return f"wrong: {sentence}"
        return f"wrong: {case.hint or _shape_note(got, case.expected)}"
    return "right"
