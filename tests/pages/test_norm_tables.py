"""What the pages show of each norm is what its record says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from loading import load

from normlab import norms
from normlab.book.plotting.norms import SHOWN_NORMS

BOOK = Path(__file__).resolve().parents[2] / "book"
tables = load(BOOK / "_tools" / "norm_tables.py")
REMEDY = "another than its records; run `python book/_tools/norm_tables.py`"


def test_pages_are_those_of_the_records() -> None:
    for path, text in tables.write_pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} says {REMEDY}"


@pytest.mark.parametrize(
    ("change", "pages"),
    [
        ({"label": "BN"}, {"explorer.js", "cheat_sheet.md"}),
        ({"color": "#000000"}, {"explorer.js"}),
        ({"eps": 1e-3}, {"norms.md"}),
        ({"centered": False}, {"explorer.js", "cheat_sheet.md"}),
        ({"reads": "nothing"}, {"norms.md"}),
        ({"caution": "never"}, {"cheat_sheet.md"}),
        ({"absent": {"explorer": "no place"}}, {"explorer.js"}),
        ({"torch": None}, {"explorer.js", "cheat_sheet.md", "norms.md"}),
    ],
    ids=lambda value: "-".join(sorted(value)),
)
def test_another_record_gives_other_pages(change, pages, monkeypatch) -> None:
    (field,) = change
    table = norms.NORMS if hasattr(norms.NORMS["batch_norm"], field) else SHOWN_NORMS
    changed = dataclasses.replace(table["batch_norm"], **change)
    monkeypatch.setitem(table, "batch_norm", changed)
    written = tables.write_pages().items()
    assert {path.name for path, text in written if path.read_text(encoding="utf-8") != text} == (
        pages
    )


@pytest.mark.parametrize(
    ("change", "formula"),
    [
        ({}, "`(x - mean(x)) / sqrt(var(x) + eps) * weight + bias`"),
        (
            {"eps_placement": "clamp"},
            "`(x - mean(x)) / max(sqrt(var(x)), sqrt(eps)) * weight + bias`",
        ),
        (
            {"centered": False, "spread": "sum of squares"},
            "`x / sqrt(sum(x**2) + eps) * weight + bias`",
        ),
        (
            {"centered": False, "eps_placement": "outside", "signature": ("eps",)},
            "`x / (sqrt(mean(x**2)) + eps)`",
        ),
    ],
)
def test_a_formula_follows_the_record(change, formula) -> None:
    norm = dataclasses.replace(norms.NORMS["layer_norm"], **change)
    assert tables.write_formula(norm) == formula
