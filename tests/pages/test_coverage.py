"""Every claim that the book set out to settle has a place that settles it.

`book/coverage.yml` names, for each claim, a page and an anchor with the cell, the citation or the
test that settles it, or the chapter to come that will.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"

# Five notes were the material of this book. Their statements are numbered from 1 in each note;
# what else they contain, and what the plan of the book asks for, has names. The statements of
# "005" are about norms after 2016 and stood in no note.
STATEMENTS = {"000": 29, "001": 29, "002": 7, "003": 26, "004": 14, "005": 3}
CONTENTS = {
    "002": "ok",
    "B-000": "problem drawbacks authors comparison pseudocode data results models source backward "
    "references",
    "B-001": "axes derivation listing rms deepnorm warmup survey differences figures",
    "B-002": "limits derivation gain properties diagram",
    "B-003": "whitening shift frame batch layer power weights data proofs",
    "B-004": "picture sentences formula listing keepdim axes table",
    "B-design": "chapters notebooks errata",
}
INVENTORY = {f"{note}-{i}" for note, n in STATEMENTS.items() for i in range(1, n + 1)} | {
    f"{group}-{name}" for group, names in CONTENTS.items() for name in names.split()
}

CHAPTERS = {
    "motivation",
    "batch_norm",
    "layer_norm",
    "invariance",
    "rms_norm",
    "deep_norm",
    "warmup",
    "pytorch_source",
    "numerics",
    "checks",
    "claims",
    "bn_vs_ln",
    "paper_experiments",
    "paper_experiments_further",
    "debugging_causes",
    "interview",
    "teaching",
    "family",
}

KINDS = ("cell", "citation", "figure", "test")
LABEL = re.compile(r"^\(([\w-]+)\)=\s*$|^:(?:name|label): *([\w-]+)\s*$")
FENCE = re.compile(r"(`{3,})(.*)")
LEAST = 7  # the level of what has no heading


@dataclass
class Section:
    """What stands between a label and the next heading of its level: text, tagged cells, figures.

    The section of a page's own label is its opening: what stands before the next heading.
    """

    text: str = ""
    tagged: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    figures: set[str] = field(default_factory=set)


Page = Mapping[str, Section]  # by the labels of a page


def read_page(path: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return read_sections([{"cell_type": "markdown", "source": text, "metadata": {}}])
    return read_sections(json.loads(text)["cells"])


def without_listings(text: str) -> Iterator[str]:
    """The lines of a text that stand in no listing; what stands in a directive is text."""
    directives, listing = 0, ""
    for line in text.splitlines():
        fence = FENCE.match(line)
        if listing:
            listing = "" if fence and fence[0].strip() == listing else listing
        elif fence and not fence[2].startswith("{") and not (directives and not fence[2].strip()):
            listing = fence[1]
        else:
            if fence:
                directives += 1 if fence[2].startswith("{") else -1
            yield line


def read_sections(cells: list[dict[str, Any]]) -> dict[str, Section]:
    """The sections of a page; what has a label and no heading ends at the next heading."""
    sections: dict[str, Section] = {}
    open_ones: dict[str, int] = {}  # label -> level of its heading
    for cell in cells:
        if cell["cell_type"] == "code":
            for anchor, tag in product(open_ones, cell["metadata"].get("tags", ())):
                sections[anchor].tagged.setdefault(tag, []).append(cell)
            for anchor in open_ones:
                sections[anchor].figures |= {figure_of(cell)}
            continue
        waiting: list[str] = []  # labels that stand before a heading
        for line in without_listings("".join(cell["source"])):
            if label := LABEL.match(line):
                waiting.append(label[1] or label[2])
                open_ones[waiting[-1]] = LEAST
                sections[waiting[-1]] = Section()
            elif heading := re.match(r"(#+) ", line):
                level = len(heading[1])
                open_ones = {a: n for a, n in open_ones.items() if 1 < n < level or a in waiting}
                open_ones |= dict.fromkeys(waiting, level)
                waiting = []
            elif line.strip() and not line.startswith(("(", ":")):
                waiting = []
            for name in open_ones:
                sections[name].text += line + "\n"
    return sections


def figure_of(cell: Mapping[str, Any]) -> str:
    """The name of the figure that a cell draws, or nothing."""
    return cell["metadata"].get("mystnb", {}).get("figure", {}).get("name", "")


def find_complaints(
    entries: Mapping[str, Mapping[str, Any]],
    pages: Mapping[str, Page],
    bib_keys: set[str],
    inventory: set[str],
) -> list[str]:
    """What is wrong with the entries, one sentence each."""
    complaints = [f"{id}: missing" for id in sorted(inventory - set(entries))]
    complaints += [f"{id}: not in the inventory" for id in sorted(set(entries) - inventory)]
    for id, entry in entries.items():
        complaints += [f"{id}: {text}" for text in check_entry(entry, pages, bib_keys)]
        if is_topic(id) and "citation" in entry and not entry.get("words"):
            complaints.append(f"{id}: a cited paper is no topic; which words treat it?")
    return complaints


def is_topic(id: str) -> bool:
    """Whether an entry is what a note treats, not a statement, which its verdict sums up."""
    return id.startswith("B-00")


def check_entry(
    entry: Mapping[str, Any], pages: Mapping[str, Page], bib_keys: set[str]
) -> list[str]:
    if not entry.get("claim", "").strip():
        return ["no claim is stated"]
    keys = set(entry) - {"claim", "words"}
    if keys == {"pending"}:
        chapter = entry["pending"]
        if chapter not in CHAPTERS:
            return [f"unknown chapter {chapter!r}"]
        return [f"pending, but {chapter} is written"] if f"book/{chapter}" in pages else []
    places = [{"page", "anchor", kind} for kind in KINDS]
    if keys not in places and not (keys == {"page", "anchor"} and entry.get("words")):
        expected = f"pending, or page, anchor, and words or one of {KINDS}"
        return [f"has {sorted(keys)}; expected {expected}"]
    page = pages.get(entry["page"])
    if page is None:
        return [f"no page {entry['page']!r}"]
    complaints = []
    section = page.get(entry["anchor"])
    if section is None:
        return [f"no anchor {entry['anchor']!r} in {entry['page']}"]
    for words in entry.get("words", ()):
        if words not in " ".join(section.text.split()):
            complaints.append(f"{entry['anchor']} does not say {words!r}")
    if "figure" in entry and entry["figure"] not in section.figures:
        complaints.append(f"{entry['anchor']} does not draw {entry['figure']!r}")
    if "citation" in entry and entry["citation"] not in bib_keys:
        complaints.append(f"no citation {entry['citation']!r} in references.bib")
    elif "citation" in entry and entry["citation"] not in section.text:
        complaints.append(f"{entry['anchor']} does not cite {entry['citation']!r}")
    if "test" in entry and not is_test(entry["test"]):
        complaints.append(f"no test {entry['test']!r}")
    if "cell" in entry:
        cells = section.tagged.get(entry["cell"], [])
        if not cells:
            complaints.append(f"no cell tagged {entry['cell']!r} in {entry['anchor']}")
        if any(not "".join(c["source"]).strip() for c in cells):
            complaints.append(f"a cell tagged {entry['cell']!r} holds no code")
        elif cells and not any(c["outputs"] for c in cells):
            complaints.append(f"no cell tagged {entry['cell']!r} stores an output")
    return complaints


def is_test(name: str) -> bool:
    """Whether `name`, as file::function, is a test of this project."""
    file, _, function = name.partition("::")
    path = ROOT / file
    if not file.startswith("tests/") or not path.is_file():
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def read_bib_keys() -> set[str]:
    text = (BOOK / "references.bib").read_text(encoding="utf-8")
    return set(re.findall(r"^@\w+\{([^,\s]+),", text, flags=re.MULTILINE))


def read_pages() -> dict[str, Page]:
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    names = re.findall(r"(?:root|file): *(\S+)", toc)
    files = {name: ROOT / f"{name}.ipynb" for name in names}
    files = {n: path if path.exists() else path.with_suffix(".md") for n, path in files.items()}
    return {name: read_page(path) for name, path in files.items() if path.exists()}


def test_every_claim_has_its_place() -> None:
    entries = yaml.safe_load((BOOK / "coverage.yml").read_text(encoding="utf-8"))
    assert find_complaints(entries, read_pages(), read_bib_keys(), INVENTORY) == []


def test_the_inventory_is_complete() -> None:
    assert len(INVENTORY) == sum(STATEMENTS.values()) + 1 + 44


# What follows tests the check itself.


def test_a_heading_in_a_listing_ends_no_section() -> None:
    text = "(a)=\n## A\n\n```{exercise}\n:label: b\nWhy?\n```\n\n```python\n# no heading\n```\n"
    text += "\nx2020y"
    sections = read_sections([{"cell_type": "markdown", "source": text}])
    assert list(sections) == ["a", "b"]
    assert "x2020y" in sections["a"].text
    assert "no heading" not in sections["a"].text


GOOD = {"claim": "It is so.", "page": "book/a", "anchor": "top", "cell": "claim"}
CITED = {"claim": "It is so.", "page": "book/a", "anchor": "thm", "citation": "ba2016layer"}
TESTED = {"claim": "It is so.", "page": "book/a", "anchor": "top"} | {
    "test": "tests/pages/test_coverage.py::test_every_claim_has_its_place"
}
PENDING = {"claim": "It is so.", "pending": "warmup"}
SAID = {**CITED, "words": ["Who first"]}
ALONE = {"claim": "It is so.", "page": "book/a", "anchor": "thm", "words": ["Who first"]}
DRAWN = {"claim": "It is so.", "page": "book/a", "anchor": "top", "figure": "fig-a"}


def make_page(outputs: list[Any], source: str = "x") -> Page:
    tags = {"metadata": {"tags": ["claim"], "mystnb": {"figure": {"name": "fig-a"}}}}
    texts = [
        "(page)=\n# Page\n\n(top)=\n## Title\n\n"
        "```{prf:theorem} Name\n:label: thm\nWho first? {cite:t}`ba2016layer`.\n```\n",
        "(other)=\n## Other\n",
    ]
    first, last = ({"cell_type": "markdown", "source": text, "metadata": {}} for text in texts)
    return read_sections(
        [first, {"cell_type": "code", "source": source, "outputs": outputs} | tags, last]
    )


PAGES = {"book/a": make_page([{}]), "book/b": make_page([]), "book/c": make_page([{}], " ")}
PAGES |= {"book/rms_norm": make_page([])}


@pytest.mark.parametrize("entry", [GOOD, CITED, TESTED, PENDING, SAID, ALONE, DRAWN])
def test_a_good_entry_passes(entry: dict[str, str]) -> None:
    assert find_complaints({"1": entry}, PAGES, {"ba2016layer"}, {"1"}) == []


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ({}, "1: missing"),
        ({"1": GOOD, "2": GOOD}, "2: not in the inventory"),
        ({"1": {**GOOD, "claim": " "}}, "1: no claim is stated"),
        ({"1": {**PENDING, "pending": "someday"}}, "1: unknown chapter 'someday'"),
        ({"1": {**PENDING, "pending": "rms_norm"}}, "1: pending, but rms_norm is written"),
        ({"1": {"claim": "It is."}}, "1: has []"),
        ({"1": {**GOOD, "pending": "warmup"}}, "1: has ['anchor', 'cell', 'page', 'pending']"),
        ({"1": {**GOOD, "page": "book/x"}}, "1: no page 'book/x'"),
        ({"1": {**GOOD, "anchor": "bottom"}}, "1: no anchor 'bottom' in book/a"),
        ({"1": {**GOOD, "cell": "other"}}, "1: no cell tagged 'other' in top"),
        ({"1": {**GOOD, "anchor": "other"}}, "1: no cell tagged 'claim' in other"),
        ({"1": {**CITED, "anchor": "other"}}, "1: other does not cite 'ba2016layer'"),
        ({"1": {**GOOD, "anchor": "page"}}, "1: no cell tagged 'claim' in page"),
        ({"1": {**CITED, "anchor": "page"}}, "1: page does not cite 'ba2016layer'"),
        ({"1": {**CITED, "words": ["Who last"]}}, "1: thm does not say 'Who last'"),
        ({"1": {**ALONE, "anchor": "other"}}, "1: other does not say 'Who first'"),
        ({"1": {**ALONE, "words": []}}, "1: has ['anchor', 'page']"),
        ({"1": {**DRAWN, "anchor": "other"}}, "1: other does not draw 'fig-a'"),
        ({"1": {**GOOD, "page": "book/b"}}, "1: no cell tagged 'claim' stores an output"),
        ({"1": {**GOOD, "page": "book/c"}}, "1: a cell tagged 'claim' holds no code"),
        (
            {"1": {**TESTED, "test": "tests/pages/test_coverage.py::is_not"}},
            "1: no test 'tests/pages/",
        ),
        ({"1": {**TESTED, "test": "book/conftest.py::is_cell"}}, "1: no test 'book/conftest.py"),
        ({"1": {**TESTED, "test": "tests/none.py::test_a"}}, "1: no test 'tests/none.py"),
        ({"1": {**CITED, "citation": "x2020y"}}, "1: no citation 'x2020y' in references.bib"),
    ],
)
def test_a_bad_entry_is_rejected(entries: dict[str, dict[str, str]], complaint: str) -> None:
    found = find_complaints(entries, PAGES, {"ba2016layer"}, {"1"})
    assert [text[: len(complaint)] for text in found] == [complaint]


def test_a_topic_that_a_citation_settles_says_its_words() -> None:
    complaint = "B-001-x: a cited paper is no topic; which words treat it?"
    for entry, found in ((CITED, [complaint]), (SAID, [])):
        assert find_complaints({"B-001-x": entry}, PAGES, {"ba2016layer"}, {"B-001-x"}) == found
