"""Every classic wrong answer to every exercise of the book gets its own sentence.

The graders list the values that known mistakes give. Each is fed back as an answer here: a sentence
that another one hides, or that belongs to a right value, would never be read by anybody.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import pytest

from normlab import exercises
from normlab.exercises.grading import Case, grade

CHAPTERS = {
    info.name: importlib.import_module(f"normlab.exercises.{info.name}")
    for info in pkgutil.iter_modules(exercises.__path__)
    if info.name != "grading"
}
GRADERS = [
    (chapter, name)
    for chapter, module in CHAPTERS.items()
    for name in module.__all__
    if name.startswith("check_")
]


def cases_of(module: ModuleType, name: str) -> list[Case]:
    """The cases that a grader hands to `grade`; none where it grades in a way of its own."""
    captured: list[Case] = []

    def capture(answer: Callable[..., object], cases: Iterable[Case]) -> str:
        captured.extend(cases)
        return "right"

    grader = getattr(module, name)
    parameters = inspect.signature(grader).parameters.values()
    if sum(p.default is p.empty for p in parameters) > 1:
        return []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "grade", capture, raising=False)
        grader(lambda *args: None)
    return captured


def verdict_on(cases: list[Case], at: int, value: object) -> str:
    """What is said of right answers up to one case, and `value` there."""
    answers = iter([*(case.expected for case in cases[:at]), value])
    return grade(lambda *args: next(answers), cases)


def unheard(cases: list[Case]) -> list[str]:
    """Sentences that no case answers the mistake with."""
    heard = {sentence: False for case in cases for sentence in case.mistakes}
    for at, case in enumerate(cases):
        for sentence, value in case.mistakes.items():
            heard[sentence] |= verdict_on(cases, at, value) == f"wrong: {sentence}"
    return [sentence for sentence, found in heard.items() if not found]


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_each_mistake_gets_its_sentence(chapter: str, name: str) -> None:
    assert unheard(cases_of(CHAPTERS[chapter], name)) == []


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_each_grader_is_fed_by_a_test_of_its_chapter(chapter: str, name: str) -> None:
    path = Path(__file__).with_name(f"test_{chapter}.py")
    source = path.read_text(encoding="utf-8")
    assert re.search(rf"\b{name}\b", source), f"{path.name} feeds {name} no answer"


def test_a_hidden_sentence_is_found() -> None:
    cases = [
        Case((2,), 2, {"squared": 4, "doubled": 4, "nothing was done": 2}),
        Case((3,), 3, {"squared": 9, "cubed": 27, "cubed, in other words": 27}),
    ]
    assert unheard(cases) == ["doubled", "nothing was done", "cubed, in other words"]


def test_graders_with_cases_are_found() -> None:
    fed = {(chapter, name) for chapter, name in GRADERS if cases_of(CHAPTERS[chapter], name)}
    assert {chapter for chapter, _ in fed} >= {
        "batch_norm",
        "deep_norm",
        "invariance",
        "layer_norm",
        "rms_norm",
    }
    assert len(fed) > 40
    # these call the answer themselves; the tests of their chapters feed them the wrong answers
    assert ("layer_norm", "check_telltale_row") not in fed
    assert ("checks", "check_suite") not in fed
