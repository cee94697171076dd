"""Every row of the comparison names its evidence, and the evidence is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGE = BOOK / "bn_vs_ln.ipynb"
_REF = re.compile(r"\{(?:prf:)?ref\}`(?:[^`<]*<)?([^`>]+)>?`|\]\(#([a-z0-9-]+)\)")


def prose_of(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def links_of(text: str) -> set[str]:
    return {a or b for a, b in _REF.findall(text)}


def rows_without_evidence(text: str) -> list[str]:
    """Rows of tables with a column "evidence" that link nowhere."""
    bare = []
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        head, _, *rows = table.splitlines()
        if head.rstrip("| ").endswith("evidence"):
            bare += [row for row in rows if not links_of(row)]
    return bare


def test_every_row_has_evidence() -> None:
    text = prose_of(PAGE)
    assert text.count("| evidence |") >= 2
    assert rows_without_evidence(text) == []
