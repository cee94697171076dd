"""The first page leads four readers somewhere, each to what was made for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

INDEX = Path(__file__).resolve().parents[2] / "book" / "index.md"
ENTRY = re.compile(r"^(\S[^\n]*)\n: (.*?)(?=\n\n)", re.MULTILINE | re.DOTALL)
READERS = {
    "Ten minutes": {"explorer", "layer_norm", "cheat_sheet"},
    "One evening": {"batch_norm", "layer_norm", "rms_norm"},
    '"I have a layer to check"': {"numerics", "checks", "api/commands"},
    '"I want to teach this"': {"teaching"},
}


def read_tour(text: str) -> dict[str, set[str]]:
    """Readers, and the pages that they are led to."""
    tour = text.partition("## Where to begin\n")[2].partition("\n## ")[0] + "\n\n"
    return {
        reader: set(re.findall(r"\{doc\}`(?:[^`<]*<)?([^`<>]+)>?`", where))
        for reader, where in ENTRY.findall(tour)
    }


def find_complaints(text: str) -> list[str]:
    tour = read_tour(text)
    complaints = [
        f"{reader} is not led to {page}"
        for reader, pages in READERS.items()
        for page in pages - tour.get(reader, set())
    ]
    if list(tour)[:4] != list(READERS):
        complaints.append(f"the tour begins with {list(tour)[:4]}")
    if sum("claims" in pages for pages in tour.values()) > 1:
        complaints.append("the claims are linked more than once")
    return complaints


def test_the_tour_serves_four_readers() -> None:
    assert find_complaints(INDEX.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"I want to teach this"', '"I want to learn this"'),
        ("{doc}`Teaching <teaching>` has", "Teaching has"),
        ("One evening\n", "Two evenings\n"),
        ("{doc}`cheat sheet <cheat_sheet>`", "cheat sheet"),
        ("{doc}`Is this norm right? <checks>` shows", "{doc}`claims` and {doc}`checks` show"),
    ],
)
def test_a_tour_that_loses_a_reader_is_found(right: str, wrong: str) -> None:
    text = INDEX.read_text(encoding="utf-8")
    assert right in text
    assert find_complaints(text.replace(right, wrong)) != []
