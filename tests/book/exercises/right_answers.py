"""Every grader of the package, with the right answers that the test of its chapter feeds it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from normlab.book import exercises
from normlab.book.exercises import Question
from normlab.book.exercises.grading import Answer, grader
from normlab.book.sources import torch_release

CHAPTERS = {
    info.name: importlib.import_module(f"normlab.book.exercises.{info.name}")
    for info in pkgutil.iter_modules(exercises.__path__)
    if info.name != "grading"
}
GRADERS = [
    (chapter, name)
    for chapter, module in CHAPTERS.items()
    for name, check in vars(module).items()
    if name.startswith("check_") and check.__module__ == module.__name__
]


def grader_of(chapter: str, name: str) -> Callable[..., str]:
    found: Callable[..., str] = getattr(CHAPTERS[chapter], name)
    return found


@functools.cache
def _test_of(chapter: str) -> Any:
    path = Path(__file__).with_name(f"test_{chapter}.py")
    spec = importlib.util.spec_from_file_location(f"right_{chapter}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_chapter(chapter: str, what: str) -> dict[str, Any]:
    """What the test of a chapter brings, by the name of the check."""
    found: dict[str, Any] = getattr(_test_of(chapter), what, {})
    return found


def answers_of(given: Any) -> tuple[Callable[..., Any], ...]:
    """One answer, or two where the grader takes two."""
    return given if isinstance(given, tuple) else (given,)


def right_answers(chapter: str, name: str) -> tuple[Callable[..., Any], ...]:
    """One answer, or two where the grader takes two."""
    if chapter == "pytorch_source" and torch_release() != "2.13.0":
        pytest.skip("the answers are torch 2.13.0's")
    return answers_of(of_chapter(chapter, "RIGHT")[name])


def cases_of(check: Callable[..., str]) -> list[Question]:
    """The questions of a grader; none where it grades in a way of its own."""
    body = inspect.unwrap(check)
    answers = [Answer(lambda *args: None) for _ in inspect.signature(body).parameters]
    found = []
    with contextlib.suppress(TypeError):  # where it calls the answer itself
        for step in body(*answers):
            found += [step] if isinstance(step, Question) else []
    return found


def verdict_on(cases: list[Question], at: int, value: object) -> str:
    """What is said of right answers up to one case, and `value` there."""
    answers = iter([*(case.expected for case in cases[:at]), value])

    @grader
    def check(answer: Answer) -> Iterator[Question]:
        for case in cases:
            yield replace(case, through=None, dtype=None)

    return check(lambda *args: next(answers))


def heard(cases: list[Question]) -> dict[str, bool]:
    """Each sentence that a grader lists: does a case answer the mistake with it?"""
    found = {sentence: False for case in cases for sentence in case.mistakes}
    for at, case in enumerate(cases):
        for sentence, value in case.mistakes.items():
            found[sentence] |= verdict_on(cases, at, value) == f"wrong: {sentence}"
    return found


def unheard(cases: list[Question]) -> list[str]:
    """Sentences that no case answers the mistake with."""
    return [sentence for sentence, found in heard(cases).items() if not found]
