"""What holds for every check of the book; `python` of this file prints the table by chapter.

The test of a chapter brings what only its author knows, by the name of the check:

* `RIGHT`: a right answer;
* `OTHER`: a right answer in another spelling;
* `WRONG`: name of the mistake -> a wrong answer, and what is said of it. With the mistakes that the
  check lists by itself these are four or more;
* `AS_TORCH`: checks whose answers have to return tensors, for they are differentiated or their
  dtype is asked;
* `UPDATES`: checks whose answers are to change what they are given;
* `ONE_CASE`, `ONE_SIZE`: checks that have no arguments, or no sizes, to vary -> why;
* `ANY_EPS`: checks where only an eps of 0 is another one -> why.

Right answers come back here as tensor, array and plain Python; then they are spoiled, as a reader
spoils them.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from right_answers import (
    GRADERS,
    answers_of,
    cases_of,
    grader_of,
    heard,
    of_chapter,
    right_answers,
)
from torch import Tensor

from normlab.book.exercises.grading import WRONG

Function = Callable[..., Any]
FEWEST = 4


def like_torch(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(like_torch, value))
    if isinstance(value, np.ndarray | float | int | bool):
        return torch.as_tensor(value, dtype=None if isinstance(value, bool) else torch.float64)
    return value


def like_numpy(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(like_numpy, value))
    if isinstance(value, Tensor):
        return value.detach().double().numpy()
    return np.asarray(value)[()] if isinstance(value, float | int | bool | str) else value


def like_python(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return list(map(like_python, value))
    return value.tolist() if isinstance(value, Tensor | np.ndarray | np.generic) else value


STYLES: dict[str, Callable[[Any], Any]] = {
    "tensor": like_torch,
    "array": like_numpy,
    "Python": like_python,
}


def after(function: Function, change: Callable[[Any], Any]) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return change(function(*args, **kwargs))

    return call


def arrays(args: tuple[Any, ...]) -> list[Tensor | np.ndarray]:
    return [a for a in args if isinstance(a, Tensor | np.ndarray) and np.ndim(a)]


def overwriting(function: Function) -> Function:
    """Right, but for what it leaves in its first array."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        said = function(*args, **kwargs)
        with torch.no_grad():
            for array in arrays(args)[:1]:
                array += 1
        return said

    return call


def printing(function: Function) -> Function:
    return functools.wraps(function)(lambda *args, **kwargs: print(function(*args, **kwargs)))


def leaving(function: Function) -> Function:
    return after(function, lambda said: exit())


def repeating(function: Function) -> Function:
    """The first result, for ever."""
    said: list[Any] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        said[:] = said or [function(*args, **kwargs)]
        return said[0]

    return call


def right_for_one_size(function: Function) -> Function:
    sizes: list[Any] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        size = [tuple(array.shape) for array in arrays(args)]
        sizes[:] = sizes or [size]
        return function(*args, **kwargs) if size == sizes[0] else 77.0

    return call


def with_eps(function: Function, factor: float) -> Function:
    """Right, but for its eps."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(function).bind(*args, **kwargs)
        if bound.arguments.get("eps") is not None:
            bound.arguments["eps"] *= factor
        return function(*bound.args, **bound.kwargs)

    return call


def calls_of(chapter: str, name: str) -> list[list[tuple[Any, ...]]]:
    """For each answer, the arguments of its calls."""
    given: list[list[tuple[Any, ...]]] = []

    def watched(function: Function) -> Function:
        mine: list[tuple[Any, ...]] = []
        given.append(mine)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            mine.append((*args, *kwargs.values()))
            return function(*args, **kwargs)

        return call

    assert grader_of(chapter, name)(*map(watched, right_answers(chapter, name))) == "right"
    return given


def spoil(chapter: str, name: str, how: Callable[[Function], Function]) -> Iterator[str]:
    """What is said if one of the answers is spoiled."""
    answers = right_answers(chapter, name)
    for which in range(len(answers)):
        given = list(answers)
        given[which] = how(answers[which])
        yield grader_of(chapter, name)(*given)


def right_ways(chapter: str, name: str) -> dict[str, str]:
    """What is said of right answers, by their style."""
    check = grader_of(chapter, name)
    ways = {"as it is": check(*right_answers(chapter, name))}
    if other := of_chapter(chapter, "OTHER").get(name):
        ways["other spelling"] = check(*answers_of(other))
    if name not in of_chapter(chapter, "AS_TORCH"):
        for style, change in STYLES.items():
            answers = [after(f, change) for f in right_answers(chapter, name)]
            ways[style] = check(*answers)
    return ways


def wrong_ways(chapter: str, name: str) -> dict[str, tuple[str, str]]:
    """Name of a mistake -> what is said of it, and what should be."""
    check = grader_of(chapter, name)
    own = of_chapter(chapter, "WRONG").get(name, {})
    said = {mistake: (check(*answers_of(answer)), says) for mistake, (answer, says) in own.items()}
    listed = heard(cases_of(check))
    return said | {s: (f"wrong: {s}" if found else "right", s) for s, found in listed.items()}


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_a_right_answer_is_right_in_every_style(chapter: str, name: str) -> None:
    assert {way: said for way, said in right_ways(chapter, name).items() if said != "right"} == {}


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_a_chapter_brings_another_spelling_and_four_mistakes(chapter: str, name: str) -> None:
    assert name in of_chapter(chapter, "OTHER")
    said = wrong_ways(chapter, name)
    unheard = {
        mistake: got
        for mistake, (got, says) in said.items()
        if not got.startswith("wrong: ") or says not in got or WRONG in got
    }
    assert unheard == {}
    assert len(said) >= FEWEST


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_an_argument_that_is_overwritten_is_told(chapter: str, name: str) -> None:
    if name in of_chapter(chapter, "UPDATES"):
        return
    spoiled = spoil(chapter, name, overwriting)
    for calls, said in zip(calls_of(chapter, name), spoiled, strict=True):
        if any(map(arrays, calls)):
            assert said.startswith("wrong: it overwrites "), said


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_printing_is_not_returning_and_leaving_is_raising(chapter: str, name: str) -> None:
    for said in spoil(chapter, name, printing):
        assert said.startswith("wrong: it prints a value and returns None"), said
    for said in spoil(chapter, name, leaving):
        assert "SystemExit" in said


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_one_case_is_not_enough(chapter: str, name: str) -> None:
    calls = calls_of(chapter, name)
    for exempt, how, takes in (
        ("ONE_CASE", repeating, bool),
        ("ONE_SIZE", right_for_one_size, arrays),
    ):
        reason = of_chapter(chapter, exempt).get(name)
        for of_answer, said in zip(calls, spoil(chapter, name, how), strict=True):
            if any(map(takes, of_answer)):
                assert said.startswith("wrong: ") != bool(reason), (how.__name__, said)


@pytest.mark.parametrize("factor", [0.0, 2.0])
@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_eps_shows(chapter: str, name: str, factor: float) -> None:
    for which, answer in enumerate(right_answers(chapter, name)):
        if "eps" in inspect.signature(answer).parameters:
            said = list(spoil(chapter, name, lambda f: with_eps(f, factor)))[which]
            reason = of_chapter(chapter, "ANY_EPS").get(name) if factor else None
            assert said.startswith("wrong: ") != bool(reason), said


def table() -> str:
    """By chapter: checks, right answers accepted, wrong answers rejected by name."""
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for chapter, name in GRADERS:
        right, wrong = right_ways(chapter, name), wrong_ways(chapter, name)
        rejected = sum(says in got and got.startswith("wrong: ") for got, says in wrong.values())
        accepted = sum(said == "right" for said in right.values())
        counts = (1, accepted, len(right), rejected, len(wrong))
        rows[chapter] = [a + b for a, b in zip(rows[chapter], counts, strict=True)]
    rows["total"] = list(map(sum, zip(*rows.values(), strict=True)))
    head = f"{'chapter':20}{'checks':>8}{'right accepted':>17}{'wrong named':>15}"
    lines = [
        f"{chapter:20}{checks:>8}{f'{accepted} of {right}':>17}{f'{rejected} of {wrong}':>15}"
        for chapter, (checks, accepted, right, rejected, wrong) in rows.items()
    ]
    return "\n".join([head, *lines])


if __name__ == "__main__":
    print(table())
