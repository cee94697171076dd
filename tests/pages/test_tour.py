"""The first page says what the book is and opens five doors to what was made for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

INDEX = Path(__file__).resolve().parents[2] / "book" / "index.md"
ENTRY = re.compile(r"^(\S[^\n]*)\n: (.*?)(?=\n\n)", re.MULTILINE | re.DOTALL)
READERS = {
    "Read": {"explorer", "layer_norm", "cheat_sheet", "batch_norm", "rms_norm", "decision_guide"},
    "My training is broken": {"debugging"},
    "I have a layer or a model to check": {"use_it", "checks"},
    "I want to teach this": {"teaching"},
    "中文读者": {"zh/batch_norm", "zh/layer_norm"},
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
    if list(tour) != list(READERS):
        complaints.append(f"the tour begins with {list(tour)}")
    opening = text.partition("\n# ")[2] or text.partition("# ")[2]
    opening = opening.partition("\n\n")[2].partition("```{figure}")[0]
    if (count := len(re.findall(r"[.?]\**(?:\s|$)", opening))) != 3:
        complaints.append(f"{count} sentences before the picture; expected 3")
    first, tour_at = text.find("```{figure}"), text.find("## Where to begin")
    if not 0 < first < tour_at or text.count("```{figure}") != 1 or ":alt: " not in text:
        complaints.append("expected one picture with alt text before the tour")
    if moved := re.findall(r"<(?:solutions|api)/(?!index|commands)[^>]*>", text):
        complaints.append(f"{len(moved)} links to solutions and pages of the package")
    if sum("claims" in pages for pages in tour.values()) > 1:
        complaints.append("the claims are linked more than once")
    return complaints


def test_the_tour_has_five_doors() -> None:
    assert find_complaints(INDEX.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("I want to teach this", "I want to learn this"),
        ("{doc}`decision guide <decision_guide>`, a table", "decision guide, a table"),
        ("{doc}`Teaching <teaching>` has", "Teaching has"),
        ("My training is broken\n", "My training is fine\n"),
        ("{doc}`cheat sheet <cheat_sheet>`", "cheat sheet"),
        ("{doc}`Is this norm right? <checks>` shows", "{doc}`claims` and {doc}`checks` show"),
        ("**the mean of what?** This", "**the mean of what?** Really. This"),
        (":alt: One block", "One block"),
        ("## Where to begin\n", "## Where to begin\n\n```{figure} a.png\n```\n"),
        ("{doc}`All pages <pages>`", "{doc}`layers <api/layers>`"),
    ],
)
def test_a_tour_that_loses_a_reader_is_found(right: str, wrong: str) -> None:
    text = INDEX.read_text(encoding="utf-8")
    assert right in text
    assert find_complaints(text.replace(right, wrong)) != []
