"""Answers are linked to what carries them; the build finds links that lead nowhere.

The pages that readers search for stand on the chapters: each answer has to name the anchor in
another page, or the source, that carries it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from loading import load

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"


coverage = load(Path(__file__).with_name("test_coverage.py"))

# Page -> what an answer is in it: a section of the second level that has a label, or a block that
# folds.
ANSWERS = {
    "bn_vs_ln": "sections",
    "debugging": "sections",
    "debugging_causes": "sections",
    "debugging_further": "sections",
    "interview": "blocks",
}
# Sections that sum up what others have shown, or that ask.
SUMMARIES = re.compile(r"-(?:status|established|takeaway|take-away|exercises|tasks|how)$")

# A bare fence closes a directive.
CODE = re.compile(
    r"^(`{3,})(?![{\s])[^\n]*\n.*?^\1`*\s*$|`{3,}[^`\n]+`{3,}", re.DOTALL | re.MULTILINE
)
ROLE = re.compile(r"\{(?:ref|numref|prf:ref|eq)\}`(?:[^`<]*<)?([^`<>]+)>?`")
HASH = re.compile(r"\]\(#([\w:.-]+)\)")
FILE = re.compile(r"\]\(((?!https?:|mailto:)[^)\s#]+)(?:#([\w:.-]+))?\)")
CITE = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
EQUATION = re.compile(r"^\$\$ *\(([\w:.-]+)\)\s*$", re.MULTILINE)
SECTION = re.compile(r"^\(([\w-]+)\)=\n## +(.+)$", re.MULTILINE)
BLOCK = re.compile(
    r"^(?P<fence>:{3,}|`{3,})\{(?:dropdown|admonition)\} *(?P<title>[^\n]*)\n(?P<body>.*?)"
    r"^(?P=fence)\s*$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Book:
    """What can be pointed at: anchors with their page, and entries of the bibliography."""

    anchors: Mapping[str, str]
    keys: frozenset[str]


def read_text(path: Path) -> str:
    """The prose of a page; headings of figures are metadata and hold no links."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def find_anchors(path: Path) -> set[str]:
    prose = read_text(path)
    sections = coverage.read_sections([{"cell_type": "markdown", "source": prose}])
    found = set(sections) | set(EQUATION.findall(prose))
    if path.suffix == ".ipynb":
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            figure = cell["metadata"].get("mystnb", {}).get("figure", {})
            found |= {figure["name"]} if "name" in figure else set()
    return found


def find_page(name: str) -> Path | None:
    paths = (BOOK / f"{name}.ipynb", BOOK / f"{name}.md")
    return next((path for path in paths if path.exists()), None)


def read_book() -> Book:
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    names = {n.removeprefix("book/") for n in re.findall(r"(?:root|file): *(\S+)", toc)}
    anchors: dict[str, str] = {}
    for name in sorted(names):
        path = find_page(name)
        if path is not None:
            anchors |= dict.fromkeys(find_anchors(path), name)
    return Book(anchors, frozenset(coverage.read_bib_keys()))


def find_answers(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """Each answer of a page with its name."""
    if kind == "sections":
        starts = list(SECTION.finditer(text))
        ends = [*(m.start() for m in starts[1:]), len(text)]
        for match, end in zip(starts, ends, strict=False):
            if not SUMMARIES.search(match[1]):
                yield match[1], text[match.end() : end]
    else:
        for match in BLOCK.finditer(text):
            yield match["title"] or match["body"][:40], match["body"]


def is_carried(answer: str, page: str, book: Book) -> bool:
    """Whether an answer points at an anchor of another page or at a source."""
    answer = CODE.sub("", answer)
    anchors = ROLE.findall(answer) + HASH.findall(answer)
    anchors += [anchor for _, anchor in FILE.findall(answer) if anchor]
    keys = [key.strip() for keys in CITE.findall(answer) for key in keys.split(",")]
    return any(book.anchors.get(a, page) != page for a in anchors) or any(
        key in book.keys for key in keys
    )


def find_complaints(page: str, text: str, kind: str, book: Book) -> list[str]:
    answers = list(find_answers(text, kind))
    complaints = [
        f"{name}: nothing carries it"
        for name, answer in answers
        if not is_carried(answer, page, book)
    ]
    if not answers:
        complaints.append("no answers were found")
    return complaints


@pytest.mark.parametrize("page", ANSWERS)
def test_every_answer_is_carried(page: str) -> None:
    path = find_page(page)
    assert path is not None
    assert find_complaints(page, read_text(path), ANSWERS[page], read_book()) == []
