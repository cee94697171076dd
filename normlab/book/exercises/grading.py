"""How an exercise is graded: questions with the right value and the values of known mistakes.

What every check asks stands here and in :mod:`normlab.book.exercises.answer`; what only the author
of a check can see to is counted by `tests/book/exercises/test_what_every_check_asks.py`:

* several sizes, of which none divides the other, and of which one is square where only the values
  can tell a wrong axis; every axis has its own size in another question;
* an `eps`, where there is one, of the size of the variance, so that forgetting it shows;
* a right value comes as tensor, array, Python number or list, a tuple as a list;
* type and shape are named before the mathematics, and a dtype where the text names one;
* the arguments stay as they were, nothing forbidden is called, and something is returned;
* at least four wrong answers get a sentence that names their mistake. One that is a mistake of
  `normlab.checks.mistakes` has its sentence from there, by `known` of `shared.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from normlab.book.exercises.answer import UNANSWERED, Answer
from normlab.checks.report import Report

__all__ = [
    "UNANSWERED",
    "Answer",
    "Grading",
    "Question",
    "as_array",
    "as_plain",
    "grader",
    "random",
    "uneven",
    "what_fails",
]

WRONG = "the value is wrong"
RETURNS = 'Returns:\n    "right", "not answered yet", or what is wrong.'


@dataclass(frozen=True)
class Question:
    """One call of an answer.

    Attributes:
        args: what the answer is called with.
        expected: the right value: number, string, array, tensor, or a tuple of those.
        mistakes: sentence about a mistake -> the value that the mistake gives.
        hint: sentence for a wrong value that no known mistake explains.
        tolerance: largest difference allowed, relative to the largest expected magnitude.
        through: what is called in place of the answer; it calls the answer and says what came
            of it.
        dtype: of the tensor or array that the text asks for; None where any will do.
        choices: the words among which the text asks for one; empty where it asks for none.
    """

    args: tuple[Any, ...]
    expected: Any
    mistakes: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""
    tolerance: float = 1e-5
    through: Callable[..., Any] | None = None
    dtype: torch.dtype | np.dtype | None = None
    choices: tuple[str, ...] = ()

    def judge(self, got: Any) -> str:
        """What is wrong with a value, or "" where nothing is."""
        if _agrees(got, self.expected, self.tolerance):
            return self._unlike_dtype(got)
        if self.choices and isinstance(got, str) and got not in self.choices:
            return f"got {got!r}; expected one of {', '.join(map(repr, self.choices))}"
        return (
            self.known(got)
            or _unfit(got, self.expected)
            or self._unlike_dtype(got)
            or self._unexplained(got)
        )

    def known(self, got: Any) -> str:
        """The sentence of the known mistake that gives a wrong value, or "" where none does."""
        if _agrees(got, self.expected, self.tolerance):
            return ""
        values = self.mistakes.items()
        return next((said for said, value in values if _agrees(got, value, self.tolerance)), "")

    def _unlike_dtype(self, got: Any) -> str:
        found = getattr(got, "dtype", type(got).__name__)
        return "" if self.dtype in (None, found) else f"expected dtype {self.dtype}, got {found}"

    def _unexplained(self, got: Any) -> str:
        what = _relation(got, self.expected, self.tolerance)
        return ". ".join(filter(None, (what, self.hint))) or WRONG


Grading = Iterator[Question | str]


def as_array(value: Any) -> np.ndarray:
    """A number, array or tensor in float64."""
    if isinstance(value, Fraction):
        value = float(value)
    if hasattr(value, "detach"):
        value = value.detach().to("cpu").double().numpy()
    if isinstance(value, list | tuple) and any(hasattr(one, "detach") for one in value):
        value = [as_array(one) for one in value]
    array = np.asarray(value)
    if array.dtype.kind in "USOc":
        raise TypeError(f"expected numbers, got {type(value).__name__}")
    return array.astype(np.float64)


def _is_one(value: Any) -> bool:
    return not isinstance(value, tuple | list) and getattr(value, "ndim", 0) == 0


def _as_tuple(got: Any, expected: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A tuple of what was returned: a list or an array will do, and so do nested numbers."""
    if _is_one(got) or not isinstance(got, tuple | list | np.ndarray | Tensor):
        return None
    if len(got) != len(expected) and all(map(_is_one, expected)):
        try:
            return tuple(as_array(got).ravel())
        except (TypeError, ValueError):
            pass
    return tuple(got)


def as_plain(got: Any) -> Any:
    """NumPy's and torch's own truth values and strings, as Python's."""
    if isinstance(got, np.bool_ | np.str_):
        return got.item()
    if isinstance(got, Tensor) and got.dtype == torch.bool and got.numel() == 1:
        return bool(got)
    return got


def _agrees(got: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, tuple):
        values = _as_tuple(got, expected)
        return (
            values is not None
            and len(values) == len(expected)
            and all(_agrees(g, e, tolerance) for g, e in zip(values, expected, strict=True))
        )
    if isinstance(expected, str | bool) or expected is None:
        got = as_plain(got)
        return type(got) is type(expected) and got == expected
    try:
        a, b = as_array(got), as_array(expected)
    except (TypeError, ValueError):
        return False
    if a.shape != b.shape:
        return False
    scale = float(np.abs(b).max(initial=0.0)) or 1.0
    near = (np.abs(a - b) <= tolerance * scale) | (np.isnan(a) & np.isnan(b))
    return bool(near.all())


def _kind(shape: tuple[int, ...]) -> str:
    return f"shape {shape}" if shape else "one number"


def _unfit(got: Any, expected: Any) -> str:
    """What is wrong with type, shape or finiteness of a value, before its mathematics."""
    name = type(got).__name__
    if isinstance(expected, tuple):
        count = len(expected)
        values = _as_tuple(got, expected)
        if values is None:
            return f"expected a tuple of {count} values, got {name}"
        if len(values) != count:
            return f"expected a tuple of {count} values, got {len(values)}"
        each = [_unfit(*pair) for pair in zip(values, expected, strict=True)]
        wrong = next((place for place, text in enumerate(each) if text), None)
        return "" if wrong is None else f"value {wrong + 1} of {count}: {each[wrong]}"
    if isinstance(expected, bool):
        return "" if isinstance(as_plain(got), bool) else f"expected True or False, got {name}"
    if isinstance(expected, str):
        return "" if isinstance(as_plain(got), str) else f"expected a string, got {name}"
    if expected is None:
        return f"expected None, got {name}"
    want = as_array(expected)
    try:
        array = as_array(got)
    except (TypeError, ValueError):
        return f"expected {'an array' if want.shape else 'a number'}, got {name}"
    if array.shape != want.shape:
        return f"expected {_kind(want.shape)}, got {_kind(array.shape)}"
    if np.isfinite(want).all() and not np.isfinite(array).all():
        return f"it holds {array[~np.isfinite(array)][0]}"
    return ""


def _relation(got: Any, expected: Any, tolerance: float) -> str:
    """How a value that fits is related to the right one, where that can be said in general."""

    def agrees(value: Any) -> bool:
        return _agrees(got, value, tolerance)

    if isinstance(expected, tuple):
        values = _as_tuple(got, expected) or ()
        if len(expected) > 1 and agrees(expected[::-1]):
            return "the values are right, in reversed order"
        wrong = [not _agrees(*pair, tolerance) for pair in zip(values, expected, strict=True)]
        if all(wrong):
            return ""
        place = wrong.index(True)
        what = _relation(values[place], expected[place], tolerance)
        return f"value {place + 1} of {len(expected)} is wrong{what and ': ' + what}"
    if isinstance(expected, str | bool):
        return ""
    a, b = as_array(got), as_array(expected)
    if agrees(-b):
        return "its sign is reversed"
    with np.errstate(all="ignore"):
        if agrees(1 / b):
            return "it is the reciprocal of the right value"
        ratio = a / b
    factors = ratio[np.isfinite(ratio)]
    if not factors.size or not agrees(factors[0] * b):
        return ""
    factor = float(factors[0])
    whole = any(abs(f - round(f)) <= tolerance * abs(f) for f in (factor, 1 / (factor or np.nan)))
    if factors.size > 1 or (whole and abs(factor) < 100):
        return f"it is {factor:.4g} times the right value"
    return ""


def _verdict(answers: tuple[Answer, ...], grading: Grading) -> str:
    failed = ""
    try:
        for step in grading:
            if isinstance(step, Question):
                failed = step.judge((step.through or answers[0])(*step.args))
                failed += answers[0].describe(step.args, {}) if failed == WRONG else ""
            else:
                failed = step
            if failed:
                break
    except Exception as error:  # what an answer returns may be unfit in any way
        if not any(answer.calls for answer in answers):
            raise
        failed = f"the check of its result raised {type(error).__name__}: {error}"
        failed = "" if any(answer.error for answer in answers) else failed
    if not any(answer.calls for answer in answers):
        raise ValueError("the answer was never called, so nothing was checked")
    if broke := next((answer.broke for answer in answers if answer.broke), ""):
        return f"wrong: {broke}"
    noted = next((answer.verdict for answer in answers if answer.verdict), "")
    if UNANSWERED in (failed, noted):
        return UNANSWERED
    return f"wrong: {failed}" if failed else noted or "right"


def what_fails(report: Report) -> str:
    """The first failure of a check of whole layers, or ""."""
    return "" if report.passed else report.failures[0].message


@overload
def grader(body: Callable[..., Grading]) -> Callable[..., str]: ...


@overload
def grader(
    *, forbids: tuple[str, ...]
) -> Callable[[Callable[..., Grading]], Callable[..., str]]: ...


def grader(body: Callable[..., Grading] | None = None, *, forbids: tuple[str, ...] = ()) -> Any:
    """Make the check of an exercise from a function that asks and says what is wrong.

    The function takes one or more answers and yields questions, which are put to the first, or
    sentences that say what is wrong, "" where nothing is. The first thing that is wrong ends the
    grading. It may call an answer itself; an exception of the answer, or None, ends the grading as
    well.

    Args:
        body: function with a docstring, into which the section on what is returned is put.
        forbids: what no answer may call: names of norms, "autograd", "float64". Of those that an
            answer did call, `Answer.called` tells.

    Returns:
        a function of the answers that returns "right", "not answered yet", or what is wrong. It
        never raises for a wrong answer, and it leaves torch's random stream as it was.

    Raises:
        ValueError: when the check is called: it did not call the answer, so nothing was checked.
    """
    if body is None:
        return functools.partial(grader, forbids=forbids)

    @functools.wraps(body)
    def check(*functions: Callable[..., Any]) -> str:
        for function in functions:
            if not callable(function):
                got = type(function).__name__
                return f"wrong: expected a function, got {got}: give its name, without ( )"
        answers = tuple(Answer(function, frozenset(forbids)) for function in functions)
        with torch.random.fork_rng(devices=[]):
            return _verdict(answers, body(*answers))

    text, mark, source = inspect.cleandoc(body.__doc__ or "").partition("Source:")
    if "Returns:" not in text:
        text = f"{text.rstrip()}\n\n{RETURNS}\n\n"
    check.__doc__ = text + mark + source
    check.__annotations__ = body.__annotations__ | {"return": "str"}
    signature = inspect.signature(body).replace(return_annotation="str")
    check.__signature__ = signature  # type: ignore[attr-defined]
    return check


def uneven(x: Tensor, axis: int, smallest: float) -> Tensor:
    """`x` with factors along an axis, from `smallest` to 1: `eps` shows in some cells, not in all.

    Only so do a missing eps and one that is a lower bound differ from each other.
    """
    shape = [-1 if axis % x.dim() == at else 1 for at in range(x.dim())]
    exponents = torch.linspace(1.0, 0.0, x.shape[axis], dtype=torch.float64)
    return x * smallest ** exponents.view(shape)


def random(*shape: int, seed: int) -> Tensor:
    """Standard normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
