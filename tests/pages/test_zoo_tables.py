"""The page of the zoo shows its record."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from loading import load

BOOK = Path(__file__).resolve().parents[2] / "book"
tables = load(BOOK / "_tools" / "zoo_tables.py")
TEXT = (BOOK / "zoo.md").read_text(encoding="utf-8")


def test_the_page_is_that_of_its_record() -> None:
    assert tables.write_page(TEXT, tables.load()) == TEXT, "run `python book/_tools/zoo_tables.py`"


@pytest.mark.parametrize("key", ["norms", "understood", "unknown", "model"])
def test_another_record_gives_another_page(key: str) -> None:
    record = copy.deepcopy(tables.load())
    run = record["runs"][0]
    run[key] = f"{run[key]} 2" if key == "model" else run[key] + 1
    assert tables.write_page(TEXT, record) != TEXT


def test_another_line_gives_another_page() -> None:
    record = copy.deepcopy(tables.load())
    found = next(run["findings"] for run in record["runs"] if run["findings"])
    found[0]["line"] += 1
    assert tables.write_page(TEXT, record) != TEXT


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="summary: 0 pairs"):
        tables.write_page("no marks", tables.load())


def test_the_record_counts_each_norm_once_and_its_findings_have_places() -> None:
    for run in tables.load()["runs"]:
        assert run["norms"] == run["understood"] + run["unknown"]
        assert sum(run["families"].values()) == run["understood"]
        assert all(found["line"] > 0 for found in run["findings"])
