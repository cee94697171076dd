"""Lets the slides take from the book what it stores: numbers by name, and addresses of sections.

``{number}`../batch_norm.ipynb::bn-changed``` prints what that notebook binds with `glue`, and
``{book}`bn-by-hand``` links to a section of the built book, which lies beside the slides. A name
that does not exist ends the build.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import ReferenceRole, SphinxRole

BOOK = Path(__file__).resolve().parents[1]
BUILT = "../html"
LABEL = re.compile(r"^\(([\w-]+)\)=\n+#+ (.+)$", re.MULTILINE)
Found = tuple[list[nodes.Node], list[nodes.system_message]]


@functools.cache
def read_numbers(notebook: Path) -> dict[str, str]:
    """What the cells of a notebook bind, by name."""
    found = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            name = output.get("metadata", {}).get("scrapbook", {}).get("name", "")
            if name:
                texts = [text for kind, text in output["data"].items() if kind.endswith("plain")]
                found[name.rpartition("/")[2]] = "".join(texts[0]).strip("'\"")
    return found


@functools.cache
def read_labels() -> dict[str, tuple[str, str]]:
    """Page and title of each labeled section of the book."""
    found = {}
    for path in sorted([*BOOK.glob("*.md"), *BOOK.glob("*.ipynb")]):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        found |= {label: (path.stem, title) for label, title in LABEL.findall(text)}
    return found


class Number(SphinxRole):
    """A number that a cell of the book computed."""

    def run(self) -> Found:
        file, _, key = self.text.partition("::")
        self.env.note_dependency(relative := self.env.relfn2path(file)[0])
        known = read_numbers(Path(self.env.srcdir, relative).resolve())
        if key not in known:
            raise ExtensionError(f"{self.text}: no cell binds this number")
        return [nodes.Text(known[key])], []


class Book(ReferenceRole):
    """A section of the built book, under its own title or another one."""

    def run(self) -> Found:
        if self.target not in read_labels():
            raise ExtensionError(f"{self.target}: no section of the book has this label")
        page, title = read_labels()[self.target]
        title = self.title if self.has_explicit_title else f"In the book: {title}"
        address = f"{BUILT}/book/{page}.html#{self.target}"
        return [nodes.reference(title, title, refuri=address, internal=False)], []


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_role("number", Number())
    app.add_role("book", Book())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
