"""What a cell binds with `glue`, some page prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

BOOK = Path(__file__).resolve().parents[2] / "book"
NOTEBOOKS = sorted(p for p in BOOK.rglob("*.ipynb") if not p.parent.name.startswith("."))
PRINTED = re.compile(r"\{(?:glue:\w+|number)\}`(?:(?P<page>[^`]*)::)?(?P<key>[^`:]+)(?::[^`]*)?`")


def read_bound(notebook: dict[str, Any]) -> set[str]:
    outputs = (output for cell in notebook["cells"] for output in cell.get("outputs", ()))
    names = (output.get("metadata", {}).get("scrapbook", {}).get("name", "") for output in outputs)
    return {name.rpartition("/")[2] for name in names if name}


def read_prose(path: Path) -> str:
    """The text of a page, with captions and what its cells display as Markdown."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    texts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        outputs = (output.get("data", {}) for output in cell.get("outputs", ()))
        texts += ["".join(data.get("text/markdown", "")) for data in outputs]
        texts.append(json.dumps(cell["metadata"].get("mystnb", {}), ensure_ascii=False))
        texts += ["".join(cell["source"])] if cell["cell_type"] == "markdown" else []
    return "\n".join(texts)


def find_unprinted(bound: dict[str, set[str]], pages: dict[str, str]) -> set[tuple[str, str]]:
    """Notebooks, by their file's stem, and what they bind and no page prints."""
    printed = set()
    for page, text in pages.items():
        for found in PRINTED.finditer(text):
            printed.add((Path(found["page"] or page).stem, found["key"]))
    return {(name, key) for name, keys in bound.items() for key in keys} - printed


def test_every_bound_value_is_printed() -> None:
    bound = {
        path.stem: read_bound(json.loads(path.read_text(encoding="utf-8")))
        for path in NOTEBOOKS
        if path.parent == BOOK
    }
    prose = [*NOTEBOOKS, *BOOK.rglob("*.md"), *BOOK.glob("zh/*.yml")]
    pages = {str(path.relative_to(BOOK)): read_prose(path) for path in prose}
    assert find_unprinted(bound, pages) == set()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It is {glue:text}`gap`.", set()),
        ("It is {glue:text}`gap:s`.", set()),
        ("It is {glue:text}`a.ipynb::gap:s`, {number}`../a.ipynb::gap`.", set()),
        ("It is {glue:text}`b.ipynb::gap:s`.", {("a", "gap")}),
        ("It is {glue:text}`gaps`.", {("a", "gap")}),
        ("The gap.", {("a", "gap")}),
    ],
)
def test_what_no_page_prints_is_found(text: str, left: set[tuple[str, str]]) -> None:
    assert find_unprinted({"a": {"gap"}}, {"a.ipynb": text, "b.md": "gap"}) == left
