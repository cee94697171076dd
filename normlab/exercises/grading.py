"""How an exercise is graded: questions with the right value and the values of known mistakes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normlab.checks.report import Report

UNANSWERED = "not answered yet"
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
    """

    args: tuple[Any, ...]
    expected: Any
    mistakes: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""
    tolerance: float = 1e-5
    through: Callable[..., Any] | None = None

    def judge(self, got: Any) -> str:
        """What is wrong with a value, or "" where nothing is."""
        if _agrees(got, self.expected, self.tolerance):
            return ""
        for sentence, value in self.mistakes.items():
            if _agrees(got, value, self.tolerance):
                return sentence
        return self.hint or _shape_note(got, self.expected)


Grading = Iterator[Question | str]


def as_array(value: Any) -> np.ndarray:
    """A number, array or tensor in float64."""
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
        a, b = as_array(got), as_array(expected)
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
            and as_array(got).shape != as_array(expected).shape
        ):
            return f"expected shape {as_array(expected).shape}, got {as_array(got).shape}"
    except (TypeError, ValueError):
        return f"expected {type(expected).__name__}, got {type(got).__name__}"
    return "the value is wrong"


def _named(function: Callable[..., Any], args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
    """The arguments by the function's own names; by their places where they do not fit."""
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        yield from ((f"argument {place}", value) for place, value in enumerate(args, start=1))
        yield from kwargs.items()
        return
    for name, value in bound.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((f"{name}[{place}]", one) for place, one in enumerate(value))
        else:
            yield name, value


def _describe(name: str, value: Any) -> str:
    if getattr(value, "shape", ()):
        dtype = str(value.dtype).removeprefix("torch.")
        half = f" and dtype {dtype}" if dtype in ("float16", "bfloat16") else ""
        return f"{name} of shape {tuple(value.shape)}{half}"
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str | tuple | list):
        return f"{name} = {value!r}"
    return f"{name} ({type(value).__name__})"


class Answer:
    """A reader's function as graders call it: the first call that came to nothing is noted."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.calls = 0
        self.error: Exception | None = None  #: of that call
        self.verdict = ""  #: what is said of it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns; an exception where that is nothing."""
        said = self.run(*args, **kwargs)
        if said is None:
            error = TypeError("it returned None")
            self._note(error, str(error), args, kwargs)
            raise error
        return said

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The same for a function that changes what it is given and may return nothing."""
        self.calls += 1
        try:
            return self.function(*args, **kwargs)
        except Exception as error:  # a reader's function may fail in any way; say how
            self._note(error, f"it raised {type(error).__name__}: {error}", args, kwargs)
            raise

    def _note(self, error: Exception, what: str, args: Any, kwargs: Any) -> None:
        if self.verdict:
            return
        self.error = error
        given = ", ".join(_describe(*pair) for pair in _named(self.function, args, kwargs))
        self.verdict = f"wrong: {what}, for {given}" if given else f"wrong: {what}"
        if self.calls == 1 and str(error) == what:
            self.verdict = UNANSWERED


def _verdict(answers: tuple[Answer, ...], grading: Grading) -> str:
    failed = ""
    try:
        for step in grading:
            if isinstance(step, Question):
                failed = step.judge((step.through or answers[0])(*step.args))
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
    noted = next((answer.verdict for answer in answers if answer.verdict), "")
    if UNANSWERED in (failed, noted):
        return UNANSWERED
    return f"wrong: {failed}" if failed else noted or "right"


def what_fails(report: Report) -> str:
    """The first failure of a check of whole layers, or ""."""
    return "" if report.passed else report.failures[0].message


def grader(body: Callable[..., Grading]) -> Callable[..., str]:
    """Make the check of an exercise from a function that asks and says what is wrong.

    The function takes one or more answers, perhaps options by name, and yields questions, which
    are put to the first answer, or sentences that say what is wrong, "" where nothing is. The
    first thing that is wrong ends the grading. It may call an answer itself; an exception of the
    answer, or None, ends the grading as well.

    Args:
        body: function with a docstring, into which the section on what is returned is put.

    Returns:
        a function of the answers that returns "right", "not answered yet", or what is wrong. It
        never raises for a wrong answer, and it leaves torch's random stream as it was.

    Raises:
        ValueError: when the check is called: it did not call the answer, so nothing was checked.
    """

    @functools.wraps(body)
    def check(*functions: Callable[..., Any], **options: Any) -> str:
        answers = tuple(map(Answer, functions))
        with torch.random.fork_rng(devices=[]):
            return _verdict(answers, body(*answers, **options))

    text, mark, source = inspect.cleandoc(body.__doc__ or "").partition("Source:")
    if "Returns:" not in text:
        text = f"{text.rstrip()}\n\n{RETURNS}\n\n"
    check.__doc__ = text + mark + source
    check.__annotations__ = body.__annotations__ | {"return": "str"}
    signature = inspect.signature(body).replace(return_annotation="str")
    check.__signature__ = signature  # type: ignore[attr-defined]
    return check


def random(*shape: int, seed: int) -> Tensor:
    """Standard normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
