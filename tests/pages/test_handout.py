"""The handout: the table of its exercise, and questions in the order of the slides."""

from __future__ import annotations

from pathlib import Path

import pytest

from normlab.book.exercises.interview import TABLE

BOOK = Path(__file__).resolve().parents[2] / "book"
HANDOUT = (BOOK / "handout.md").read_text(encoding="utf-8")
SLIDES = (BOOK / "_slides" / "lecture.md").read_text(encoding="utf-8")
# What question 1, 2, ... of the handout has in common with its slide.
COMMON = [
    "normalizes the test batch",
    "How many means",
    "700",
    "(0, 2)",
    "31 others",
    "120",
    "one word",
]


def rows_of(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


@pytest.mark.parametrize("text", [HANDOUT, SLIDES], ids=["handout", "slides"])
def test_the_table_is_that_of_the_exercise(text: str) -> None:
    below = rows_of(text.partition("\n## By hand\n")[2])
    assert [list(map(int, row)) for row in below[2:5]] == TABLE


def test_questions_stand_in_the_order_of_the_slides() -> None:
    asked = [row for row in rows_of(HANDOUT.partition("## By hand")[0]) if row[0].isdigit()]
    assert [row[0] for row in asked] == [str(i) for i in range(1, len(COMMON) + 1)]
    lower = SLIDES.lower()
    places = [lower.index(words.lower()) for words in COMMON]
    assert places == sorted(places)
    assert all(row[2:] in ([""], ["", ""], []) for row in asked)  # the student's
