"""The handout: tables as the exercises draw them, and questions in the order of the slides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from loading import load

from normlab.book.exercises import variants

pytest.importorskip("sphinx", reason="jupyter-book is not installed")

BOOK = Path(__file__).resolve().parents[2] / "book"
HANDOUT = (BOOK / "handout.md").read_text(encoding="utf-8")
SLIDES = (BOOK / "_slides" / "lecture.md").read_text(encoding="utf-8")
tool = load(BOOK / "_ext" / "handout.py")
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


def test_each_column_is_the_table_of_its_seed() -> None:
    source = [tool.TABLES]
    tool.draw_tables(None, "book/handout", source)
    head, _, *rows = rows_of(source[0])
    for column, title in enumerate(head):
        seed = int(re.findall(r"\d+", title)[0])
        table = [[int(n) for n in row[column].split()] for row in rows]
        assert table == variants.make_table(seed)
    assert len(head) == len(set(head)) == 8


def test_only_the_handout_is_changed() -> None:
    source = ["no tables here"]
    tool.draw_tables(None, "book/index", source)
    assert source == ["no tables here"]
    assert HANDOUT.count(tool.TABLES) == 1


def test_questions_stand_in_the_order_of_the_slides() -> None:
    asked = [row for row in rows_of(HANDOUT) if row[0].isdigit()]
    assert [row[0] for row in asked] == [str(i) for i in range(1, len(COMMON) + 1)]
    lower = SLIDES.lower()
    places = [lower.index(words.lower()) for words in COMMON]
    assert places == sorted(places)
    assert all(row[2:] in ([""], ["", ""], []) for row in asked)  # the student's
