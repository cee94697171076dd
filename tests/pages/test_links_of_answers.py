"""Answers are linked to what carries them, and every such link leads somewhere.

The pages that readers search for stand on the chapters: each answer has to name the anchor in
another page, or the source, that carries it. Pages that are not written yet are left out.
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
# folds. The plans for teachers answer nothing, so only their links are followed.
ANSWERS = {
    "bn_vs_ln": "sections",
    "debugging": "sections",
    "debugging_further": "sections",
    "interview": "blocks",
    "teaching": "none",
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
DOC = re.compile(r"\{doc\}`(?:[^`<]*<)?([^`<>]+)>?`")
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
    """What can be pointed at: anchors with their page, files, and entries of the bibliography."""

    anchors: Mapping[str, str]
    files: frozenset[str]
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
    files: set[str] = set()
    for name in sorted(names | set(ANSWERS)):
        path = find_page(name)
        if path is not None:
            anchors |= dict.fromkeys(find_anchors(path), name)
            files |= {name, f"{name}{path.suffix}"}
    return Book(anchors, frozenset(files), frozenset(coverage.read_bib_keys()))


def broken_links(text: str, book: Book) -> list[str]:
    """Links within the book that lead nowhere."""
    text = CODE.sub("", text)
    broken = [f"no anchor {a!r}" for a in ROLE.findall(text) + HASH.findall(text)]
    broken = [b for b in broken if b.split("'")[1] not in book.anchors]
    for file, anchor in FILE.findall(text):
        if file not in book.files:
            broken.append(f"no page {file!r}")
        elif anchor and book.anchors.get(anchor) != re.sub(r"\.(md|ipynb)$", "", file):
            broken.append(f"no anchor {anchor!r} in {file!r}")
    broken += [f"no page {name!r}" for name in DOC.findall(text) if name not in book.files]
    keys = [key.strip() for keys in CITE.findall(text) for key in keys.split(",")]
    return broken + [f"no source {key!r}" for key in keys if key not in book.keys]


def find_answers(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """Each answer of a page with its name."""
    if kind == "sections":
        starts = list(SECTION.finditer(text))
        ends = [*(m.start() for m in starts[1:]), len(text)]
        for match, end in zip(starts, ends, strict=False):
            if not SUMMARIES.search(match[1]):
                yield match[1], text[match.end() : end]
    elif kind == "blocks":
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
    complaints = broken_links(text, book)
    complaints += [
        f"{name}: nothing carries it"
        for name, answer in answers
        if not is_carried(answer, page, book)
    ]
    if kind != "none" and not answers:
        complaints.append("no answers were found")
    return complaints


PAGES = [page for page in ANSWERS if find_page(page) is not None]


@pytest.mark.parametrize("page", PAGES)
def test_every_answer_is_carried_and_every_link_resolves(page: str) -> None:
    path = find_page(page)
    assert path is not None
    assert find_complaints(page, read_text(path), ANSWERS[page], read_book()) == []


def test_some_page_is_checked() -> None:
    assert "debugging" in PAGES
    path = find_page("debugging")
    assert path is not None
    assert len(list(find_answers(read_text(path), "sections"))) == 13


# What follows tests the check itself.

TOY = Book(
    {"ln-eps": "layer_norm", "fig-a": "layer_norm", "here": "debugging"},
    frozenset({"layer_norm", "layer_norm.ipynb", "debugging"}),
    frozenset({"ba2016layer"}),
)
ASKED = "(here)=\n## Why?\n\n"


@pytest.mark.parametrize(
    "link",
    [
        "See {ref}`ln-eps`.",
        "See {ref}`there <ln-eps>` and {numref}`fig-a`.",
        "See [](#ln-eps) and [home](https://a.b/c#d).",
        "See [there](layer_norm.ipynb#ln-eps), [all](layer_norm.ipynb) and {doc}`it <layer_norm>`.",
        "As {cite:t}`ba2016layer` say. ```[](#no)```",
        "See {ref}`ln-eps`.\n\n```text\n{ref}`nowhere`\n```\n",
    ],
)
def test_a_carried_answer_passes(link: str) -> None:
    assert find_complaints("debugging", ASKED + link, "sections", TOY) == []
    block = f":::{{dropdown}} Why?\n{link}\n:::\n"
    assert find_complaints("interview", block, "blocks", TOY) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (ASKED + "See {ref}`ln-esp`.", "no anchor 'ln-esp'"),
        (ASKED + "See {ref}`there <ln-esp>`.", "no anchor 'ln-esp'"),
        (ASKED + "See {prf:ref}`thm-x`.", "no anchor 'thm-x'"),
        (ASKED + "See [](#ln-esp).", "no anchor 'ln-esp'"),
        (ASKED + "```{note}\nA.\n```\n{ref}`ln-esp`\n```text\n```\n", "no anchor 'ln-esp'"),
        (ASKED + "See [it](layer_norm.ipynb#here).", "no anchor 'here' in 'layer_norm.ipynb'"),
        (ASKED + "See [it](rms.ipynb).", "no page 'rms.ipynb'"),
        (ASKED + "See {doc}`rms`.", "no page 'rms'"),
        (ASKED + "As {cite:p}`ba2016layer,x2020y` say.", "no source 'x2020y'"),
        (ASKED + "Because.", "here: nothing carries it"),
        (ASKED + "See [](#here).", "here: nothing carries it"),
        (ASKED + "See [it](https://a.b/c#ln-eps).", "here: nothing carries it"),
        (ASKED + "See `{ref}`.\n\n```text\n{ref}`ln-eps`\n```\n", "here: nothing carries it"),
        ("## Why?\n\nSee {ref}`ln-eps`.", "no answers were found"),
    ],
)
def test_a_bad_page_is_rejected(text: str, complaint: str) -> None:
    assert complaint in find_complaints("debugging", text, "sections", TOY)


def test_each_folded_block_is_an_answer_of_its_own() -> None:
    text = "".join(
        f":::{{dropdown}} {q}\n{a}\n:::\n\n"
        for q, a in (("One?", "{ref}`ln-eps`"), ("Two?", "Because."))
    )
    assert find_complaints("interview", text, "blocks", TOY) == ["Two?: nothing carries it"]
    assert find_complaints("teaching", "Plans.", "none", TOY) == []


def test_summaries_need_no_link() -> None:
    text = ASKED + "See {ref}`ln-eps`.\n\n(here-takeaway)=\n## Take-away\n\n* So.\n"
    assert find_complaints("debugging", text, "sections", TOY) == []
