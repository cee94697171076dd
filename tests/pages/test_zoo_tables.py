"""The page of the zoo shows its record."""

from __future__ import annotations

from pathlib import Path

from loading import load

BOOK = Path(__file__).resolve().parents[2] / "book"
tables = load(BOOK / "_tools" / "zoo_tables.py")
TEXT = (BOOK / "zoo.md").read_text(encoding="utf-8")


def test_the_page_is_that_of_its_record() -> None:
    assert tables.write_page(TEXT, tables.load()) == TEXT, "run `python book/_tools/zoo_tables.py`"


def test_the_record_counts_each_norm_once_and_its_findings_have_places() -> None:
    for run in tables.load()["runs"]:
        assert run["norms"] == run["understood"] + run["unknown"]
        assert sum(run["families"].values()) == run["understood"]
        assert all(found["line"] > 0 for found in run["findings"])
