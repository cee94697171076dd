"""The handout has the tables as the exercises draw them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from loading import load

from normlab.book.exercises import variants

pytest.importorskip("sphinx", reason="jupyter-book is not installed")

BOOK = Path(__file__).resolve().parents[2] / "book"
tool = load(BOOK / "_ext" / "handout.py")


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
    page = (BOOK / "handout.md").read_text(encoding="utf-8")
    assert page.count(tool.TABLES) == 1
