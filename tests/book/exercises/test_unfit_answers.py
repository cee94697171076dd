"""No grader takes an answer that raises, that returns nothing or that returns something strange.

Each right answer is spoiled in one call: in the first, the second, and so on. A grader that never
looks at what came of a call says "right" to one of these.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from right_answers import GRADERS, grader_of, right_answers

from normlab.book.exercises import Question, grader
from normlab.book.exercises.grading import Answer, Grading

Function = Callable[..., Any]
# a check of a whole layer calls an answer so often that few calls, unlike each other, are tried
MANY, FEW = 30, 6


class Boom(Exception):
    """Raised by no right answer."""


def count_calls(check: Callable[..., str], answers: tuple[Function, ...]) -> list[list[str]]:
    """For each answer, what kinds of arguments its calls get."""
    kinds: list[list[str]] = [[] for _ in answers]

    def watched(function: Function, seen: list[str]) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            parts = [*args, *kwargs.values()]
            seen.append(str([(getattr(p, "shape", p), getattr(p, "dtype", "")) for p in parts]))
            return function(*args, **kwargs)

        return call

    pairs = zip(answers, kinds, strict=True)
    assert check(*[watched(function, seen) for function, seen in pairs]) == "right"
    return kinds


def spoiled(function: Function, at: int, what: Callable[[], Any]) -> Function:
    """The function, but for one call."""
    calls = 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return what() if calls == at else function(*args, **kwargs)

    return call


def boom() -> Any:
    raise Boom("on purpose")


def spread(calls: list[int]) -> list[int]:
    """A few of the calls, the first and the last among them."""
    at = np.linspace(0, len(calls) - 1, min(len(calls), FEW)).round().astype(int)
    return [calls[i] for i in at]


def verdicts(chapter: str, name: str, what: Callable[[], Any]) -> list[tuple[int, int, str]]:
    """Which answer, which call, and what is said of it."""
    check, answers = grader_of(chapter, name), right_answers(chapter, name)
    found = []
    for which, kinds in enumerate(count_calls(check, answers)):
        first = {kind: at for at, kind in reversed(list(enumerate(kinds, start=1)))}
        for at in range(1, len(kinds) + 1) if len(kinds) < MANY else spread(sorted(first.values())):
            given = list(answers)
            given[which] = spoiled(answers[which], at, what)
            found.append((which, at, check(*given)))
    return found


def is_named(verdict: str, function: Function) -> bool:
    """Whether a parameter of the answer is named, if it has one."""
    return not (names := inspect.signature(function).parameters) or any(
        f"{name} of shape" in verdict or f"{name} = " in verdict or f"{name} (" in verdict
        for name in names
    )


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_an_answer_that_raises_in_one_call_is_wrong(chapter: str, name: str) -> None:
    found = verdicts(chapter, name, boom)
    assert found
    answers = right_answers(chapter, name)
    unheard = [
        (which, at, verdict)
        for which, at, verdict in found
        if not re.match(r"wrong: .*\bBoom\b.*: on purpose", verdict, flags=re.DOTALL)
    ]
    assert unheard == []
    for which, at, verdict in found:
        # else a check of a whole layer says what it was given, or a grader names the wrong layer
        if chapter not in ("interview", "checks") or verdict.startswith("wrong: it raised "):
            assert is_named(verdict, answers[which]), (at, verdict)


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_an_answer_that_returns_nothing_in_one_call_is_not_right(chapter: str, name: str) -> None:
    for which, at, verdict in verdicts(chapter, name, lambda: None):
        expected = ("not answered yet",) if at == 1 and which == 0 else ("wrong: ", "not answered")
        assert verdict.startswith(expected), (which, at, verdict)


STRANGE = [
    "strange",
    -3.25,
    [[1]],
    {},
    (),
    object(),
    torch.zeros(0),
    torch.full((3, 4), torch.nan),
    np.array(["a"]),
    lambda: 0,
]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_a_strange_value_is_wrong_and_nothing_raises(chapter: str, name: str, value: Any) -> None:
    unfit = [functools.wraps(f)(lambda *_, **__: value) for f in right_answers(chapter, name)]
    verdict = grader_of(chapter, name)(*unfit)
    expected = "not answered yet" if name == "check_gains" else "wrong: "
    assert verdict.startswith(expected)
    assert len(verdict) > len("wrong: ")


def test_the_input_is_named_by_the_parameters_of_the_answer() -> None:
    @grader
    def check(answer: Answer) -> Grading:
        """Grade `answer(x, weight)`."""
        yield Question((torch.ones(3, 4), torch.ones(4).half()), torch.ones(3, 4))

    assert check.__doc__ is not None and check.__doc__.endswith("or what is wrong.\n\n")
    verdict = check(lambda x, weight: x * weight[:, None])
    assert verdict.startswith("wrong: it raised RuntimeError: ")
    assert verdict.endswith(", for x of shape (3, 4), weight of shape (4,) and dtype float16")
    assert check(lambda *given: 1 / 0).endswith(
        "given[0] of shape (3, 4), given[1] of shape (4,) and dtype float16"
    )
    assert "argument 1 of shape (3, 4)" in check(lambda: 1)


def test_a_grader_that_never_asks_is_an_error() -> None:
    @grader
    def check(answer: Answer) -> Grading:
        """Grade nothing."""
        yield from ()

    with pytest.raises(ValueError, match="never called"):
        check(lambda: 1)


def test_what_cannot_be_tested_is_wrong() -> None:
    @grader
    def check(answer: Answer) -> Grading:
        """Grade `answer(x)`, of which a check of whole layers makes nothing."""
        answer(1.0)
        yield from ()
        raise ValueError("layer: it could not be tested")

    said = check(lambda x: x)
    assert said == "wrong: the check of its result raised ValueError: layer: it could not be tested"


def test_the_random_stream_is_left_as_it_was() -> None:
    @grader
    def check(answer: Answer) -> Grading:
        """Grade `answer()`, which draws."""
        yield Question((), 1.0)

    before = torch.get_rng_state()
    assert check(lambda: torch.rand(()) * 0 + 1) == "right"
    assert torch.equal(torch.get_rng_state(), before)


def test_a_grader_that_looks_at_one_case_only_is_found() -> None:
    @grader
    def blind(answer: Answer) -> Grading:
        """Grade `answer(x) -> x`, and overlook what the second call raises."""
        yield Question((1.0,), 1.0)
        with contextlib.suppress(Boom):
            answer.function(2.0)

    assert blind(spoiled(lambda x: x, 1, boom)) == "wrong: it raised Boom: on purpose, for x = 1.0"
    assert blind(spoiled(lambda x: x, 2, boom)) == "right"


# a covariance is square, and the answer is a change of a block
SQUARE_BY_NATURE = {("motivation", "check_inverse_root"), ("deep_norm", "check_gains")}
# what the exercise says about ranks, or leaves open
SEVERAL_RANKS = [
    ("deep_norm", "check_block"),
    ("interview", "check_rms_norm"),
    ("layer_norm", "check_input_gradient"),
    ("layer_norm", "check_layer_norm"),
    ("rms_norm", "check_rms_gradient"),
    ("rms_norm", "check_rms_norm"),
    ("warmup", "check_first_adam_step"),
]


def matrices(given: Any) -> list[tuple[int, ...]]:
    """Shapes of the arguments that have several axes."""
    return [tuple(g.shape) for g in given if len(getattr(g, "shape", ())) > 1]


def right_only_where(function: Function, fits: Callable[[Any], bool]) -> Function:
    """The function where `fits` says so of its arguments; elsewhere nonsense."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        said = function(*args, **kwargs)
        return said if fits(args) else torch.full((1,), 7.0)

    return call


def takes_matrices(chapter: str, name: str) -> bool:
    found = []
    answers = right_answers(chapter, name)
    watched = [
        right_only_where(f, lambda args: found.extend(matrices(args)) or True) for f in answers
    ]
    grader_of(chapter, name)(*watched)
    return bool(found)


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_an_answer_that_is_right_for_square_input_only_is_wrong(chapter: str, name: str) -> None:
    if (chapter, name) in SQUARE_BY_NATURE or not takes_matrices(chapter, name):
        return

    def is_square(args: Any) -> bool:
        return all(shape[-1] == shape[-2] for shape in matrices(args))

    answers = [right_only_where(answer, is_square) for answer in right_answers(chapter, name)]
    assert grader_of(chapter, name)(*answers).startswith("wrong: ")


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize(("chapter", "name"), SEVERAL_RANKS)
def test_an_answer_that_is_right_for_one_rank_only_is_wrong(
    chapter: str, name: str, rank: int
) -> None:
    answers = [
        right_only_where(f, lambda args: args[0].dim() == rank)
        for f in right_answers(chapter, name)
    ]
    assert grader_of(chapter, name)(*answers).startswith("wrong: ")
