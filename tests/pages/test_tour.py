"""The first page says what the book is and opens six doors to what was made for them."""

from __future__ import annotations

import re
from pathlib import Path

INDEX = Path(__file__).resolve().parents[2] / "book" / "index.md"
ENTRY = re.compile(r"^(\S[^\n]*)\n: (.*?)(?=\n\n)", re.MULTILINE | re.DOTALL)
READERS = {
    "I am new: why normalize?": {"motivation"},
    "I want to look something up": {"decision_guide", "explorer", "cheat_sheet", "claims"},
    "My training is broken": {"debugging"},
    "I have a layer or a model to check": {"use_it", "checks"},
    "I want to teach this": {"teaching"},
    "中文读者": {"zh/batch_norm", "zh/layer_norm"},
}


def test_the_tour_has_six_doors_below_one_described_picture() -> None:
    text = INDEX.read_text(encoding="utf-8")
    tour = text.partition("## Where to begin\n")[2].partition("\n## ")[0] + "\n\n"
    doors = {
        reader: set(re.findall(r"\{doc\}`(?:[^`<]*<)?([^`<>]+)>?`", where))
        for reader, where in ENTRY.findall(tour)
    }
    assert list(doors) == list(READERS)
    assert [reader for reader, pages in READERS.items() if pages - doors[reader]] == []
    assert 0 < text.find("```{figure}") < text.find("## Where to begin")
    assert text.count("```{figure}") == 1 and ":alt: " in text
