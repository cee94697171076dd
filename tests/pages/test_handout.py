"""The handout has the table of the exercise."""

from __future__ import annotations

from pathlib import Path

from normlab.book.exercises.interview import TABLE

BOOK = Path(__file__).resolve().parents[2] / "book"
HANDOUT = (BOOK / "handout.md").read_text(encoding="utf-8")


def rows_of(text: str) -> list[list[str]]:
    """Cells of the table rows of a page."""
    return [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_the_table_is_that_of_the_exercise() -> None:
    below = rows_of(HANDOUT.partition("\n## By hand\n")[2])
    assert [list(map(int, row)) for row in below[2:5]] == TABLE
