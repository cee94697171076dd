"""Every row of the comparison names its evidence, and the evidence is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGE = BOOK / "bn_vs_ln.ipynb"
_LABEL = re.compile(r"^\(([a-z0-9-]+)\)=$|^:label: ([a-z0-9-]+)$", re.MULTILINE)
_REF = re.compile(r"\{(?:prf:)?ref\}`(?:[^`<]*<)?([^`>]+)>?`|\]\(#([a-z0-9-]+)\)")


def prose_of(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def labels_of(text: str) -> set[str]:
    return {a or b for a, b in _LABEL.findall(text)}


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


ALL_LABELS = {
    label
    for path in (*BOOK.glob("*.ipynb"), *BOOK.glob("*.md"))
    for label in labels_of(prose_of(path))
}


def test_every_link_resolves() -> None:
    links = links_of(prose_of(PAGE))
    assert len(links) > 20
    assert links - ALL_LABELS == set()


def test_every_row_has_evidence() -> None:
    text = prose_of(PAGE)
    assert text.count("| evidence |") >= 2
    assert rows_without_evidence(text) == []


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("| a | evidence |\n|---|---|\n| x | {ref}`y` |\n", 0),
        ("| a | evidence |\n|---|---|\n| x | {ref}`y` |\n| z | none |\n", 1),
        ("| a | b |\n|---|---|\n| x | none |\n", 0),
    ],
)
def test_a_bare_row_is_found(text: str, bare: int) -> None:
    assert len(rows_without_evidence(text)) == bare


def test_labels_and_links_are_read() -> None:
    assert labels_of("(a-b)=\n# T\n```{x}\n:label: thm-c\n```") == {"a-b", "thm-c"}
    assert links_of("{ref}`a`, {ref}`t <b>`, {prf:ref}`c`, [](#d), [t](e.ipynb)") == set("abcd")
