"""The pages on the founding notes: each statement and topic once, under its own note, in step."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from loading import load

BOOK = Path(__file__).resolve().parents[2] / "book"
tool = load(BOOK / "_tools" / "notes.py")
DATA = tool.read_notes()


def find_complaints(data: dict[str, Any]) -> list[str]:
    """What is wrong with notes.yml, one sentence each."""
    found = []
    expected = {note: set() for note in data["notes"]}
    for id in tool.read_places():
        note = id.removeprefix("B-").partition("-")[0]
        if note in expected:
            expected[note].add(id)
    for note, page in data["notes"].items():
        entries = Counter(id for section in page["sections"] for id in section["entries"])
        found += [f"{id}: not on the page of note {note}" for id in expected[note] - set(entries)]
        found += [f"{id}: not of note {note}" for id in set(entries) - expected[note]]
        found += [f"{id}: stands {count} times" for id, count in entries.items() if count > 1]
        found += [f"{s['heading']}: without entries" for s in page["sections"] if not s["entries"]]
    shown = {id for note in expected.values() for id in note if id.startswith("B-")}
    found += [f"{id}: a topic without words" for id in shown - set(data["topics"])]
    found += [f"{id}: words for no topic" for id in set(data["topics"]) - shown]
    return sorted(found)


def test_a_reader_of_a_note_finds_all_that_it_holds() -> None:
    assert len(DATA["notes"]) == 5
    assert find_complaints(DATA) == []


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda s: s[1]["entries"].remove("000-1"), "000-1: not on the page of note 000"),
        (lambda s: s[1]["entries"].append("003-1"), "003-1: not of note 000"),
        (lambda s: s[1]["entries"].append("000-2"), "000-2: stands 2 times"),
        (lambda s: s.append({"heading": "x", "entries": []}), "x: without entries"),
    ],
)
def test_a_lost_or_misplaced_entry_is_found(spoil: Any, complaint: str) -> None:
    data = copy.deepcopy(DATA)
    spoil(data["notes"]["000"]["sections"])
    assert find_complaints(data) == [complaint]


def test_a_topic_needs_words() -> None:
    data = copy.deepcopy(DATA)
    data["topics"]["B-000-nothing"] = data["topics"].pop("B-000-data")
    complaints = ["B-000-data: a topic without words", "B-000-nothing: words for no topic"]
    assert find_complaints(data) == complaints


def test_the_pages_are_in_step_with_their_data() -> None:
    stale = [
        path.name
        for path, text in tool.render_pages()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run book/_tools/notes.py"


def test_a_page_quotes_the_note_and_names_verdict_and_place() -> None:
    text = dict(tool.render_pages())[BOOK / "zh" / "note_000.md"]
    first = text[text.index("[000-1]") :]
    assert "“旨在解决 Batch Normalization" in first.splitlines()[0]
    assert "{ref}`在循环神经网络中 <layer-norm-recurrent>`" in first.partition("\n- ")[0]
    assert "(#zh-claim-000-1)" in first.splitlines()[0]
