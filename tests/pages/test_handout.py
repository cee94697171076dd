"""Handout and slides have the table of the exercise."""

from __future__ import annotations

from pathlib import Path

import pytest

from normlab.book.exercises.interview import TABLE

BOOK = Path(__file__).resolve().parents[2] / "book"
HANDOUT = (BOOK / "handout.md").read_text(encoding="utf-8")
SLIDES = (BOOK / "_slides" / "lecture.md").read_text(encoding="utf-8")


def rows_of(text: str) -> list[list[str]]:
    """Cells of the table rows of a page."""
    return [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


@pytest.mark.parametrize("text", [HANDOUT, SLIDES], ids=["handout", "slides"])
def test_the_table_is_that_of_the_exercise(text: str) -> None:
    below = rows_of(text.partition("\n## By hand\n")[2])
    assert [list(map(int, row)) for row in below[2:5]] == TABLE
