"""Every grader takes the right answer, and gives every classic wrong one its own sentence.

The graders list the values that known mistakes give. Each is fed back as an answer here: a sentence
that another one hides, or that belongs to a right value, would never be read by anybody.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from right_answers import (
    CHAPTERS,
    GRADERS,
    cases_of,
    grader_of,
    right_answers,
    unheard,
)

from normlab.book.exercises import Question


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_right_unanswered_and_raising(chapter: str, name: str) -> None:
    check, answers = grader_of(chapter, name), right_answers(chapter, name)
    assert check(*answers) == "right"
    assert check(*[lambda *_: None for _ in answers]) == "not answered yet"
    assert "ZeroDivisionError" in check(*[lambda *_: 1 / 0 for _ in answers])


def test_what_a_module_imports_to_use_is_no_grader() -> None:
    assert "check_layer" in vars(CHAPTERS["interview"])
    assert ("interview", "check_layer") not in GRADERS


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_each_mistake_gets_its_sentence(chapter: str, name: str) -> None:
    assert unheard(cases_of(grader_of(chapter, name))) == []


@pytest.mark.parametrize(("chapter", "name"), GRADERS)
def test_each_grader_is_fed_by_a_test_of_its_chapter(chapter: str, name: str) -> None:
    path = Path(__file__).with_name(f"test_{chapter}.py")
    source = path.read_text(encoding="utf-8")
    assert re.search(rf"\b{name}\b", source), f"{path.name} feeds {name} no answer"


def test_a_hidden_sentence_is_found() -> None:
    cases = [
        Question((2,), 2, {"squared": 4, "doubled": 4, "nothing was done": 2}),
        Question((3,), 3, {"squared": 9, "cubed": 27, "cubed, in other words": 27}),
    ]
    assert unheard(cases) == ["doubled", "nothing was done", "cubed, in other words"]


def test_graders_with_cases_are_found() -> None:
    fed = {(chapter, name) for chapter, name in GRADERS if cases_of(grader_of(chapter, name))}
    assert {chapter for chapter, _ in fed} >= {
        "batch_norm",
        "deep_norm",
        "invariance",
        "layer_norm",
        "rms_norm",
    }
    assert len(fed) > 40
    # these look at the answer themselves; the tests of their chapters feed them wrong answers
    assert ("layer_norm", "check_telltale_row") not in fed
    assert ("checks", "check_suite") not in fed
