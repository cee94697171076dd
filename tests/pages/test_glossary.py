"""The glossary is whole and sorted, and holds the terms that the chapters use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml
from loading import load

pytest.importorskip("sphinx", reason="jupyter-book is not installed")

BOOK = Path(__file__).resolve().parents[2] / "book"
NOTEBOOKS = sorted(BOOK.glob("*.ipynb"))
# The chapters of the table of contents; a section below one may be short.
PARTS = yaml.safe_load((BOOK.parent / "_toc.yml").read_text(encoding="utf-8"))["parts"]
FILES = [entry["file"] for part in PARTS for entry in part["chapters"]]
CHAPTERS = [path for path in NOTEBOOKS if f"book/{path.stem}" in FILES]


glossary = load(BOOK / "_ext" / "glossary.py")
hygiene = load(BOOK / "_tools" / "hygiene.py")
Entry = glossary.Entry
ENTRIES = glossary.read_entries((BOOK / "notation.md").read_text(encoding="utf-8"))
# Bold words of the chapters that introduce no term: labels, names, and emphasis.
NO_TERMS = frozenset(
    re.split(
        r",\s+",
        """adjacent, after, almost one, behind, cannot, characters, check, close to one,
        compiled, composed, declared, each token alone, established, every, evidence,
        fails without warmup, false, first, float32, float64, follow-up, full steps first,
        function, in front, input, inside, it depends, larger rate, layer norm's weight, line,
        lines, lives, logits too, many features, measured, minus the mean, mixed, module,
        negative, no, none, not, not reproducible here, not run here, not supported,
        nothing changes, once,
        one version, only answer 2, only its own, only one half, overflow and underflow,
        plausible, predict, published, quoted, read at, registered, reverse,
        reverse a sequence, rows, second moment first, shape, shift, small, small rate,
        smaller weights, three, torch's own functions, trained, true, twice, two,
        two sentences, unconfirmed, undo, yes""",
    )
)


def prose_of(path: Path) -> str:
    if path.suffix == ".md":
        return hygiene.without_code_blocks(path.read_text(encoding="utf-8"))
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return "\n\n".join(map(hygiene.without_code_blocks, sources))


def faults(entries: Iterable[Entry]) -> Iterator[str]:
    """What is wrong with the entries of a glossary."""
    seen: set[str] = set()
    first = ""
    for entry in entries:
        names = (*entry.english, *dict.fromkeys((*entry.simplified, *entry.traditional)))
        label = names[0] if names else "an entry"
        if not (entry.english and entry.simplified and entry.meaning):
            yield f"{label} lacks a name or its meaning"
        if len(entry.simplified) != len(entry.traditional):
            yield f"{label} has not as many simplified names as traditional ones"
        # GB 2312 holds simplified characters, and Big5 traditional ones.
        for scripts, encoding in ((entry.simplified, "gb2312"), (entry.traditional, "big5")):
            for name in scripts:
                if name.encode(encoding, "replace") != name.encode(encoding, "ignore"):
                    yield f"{name} has a character of the other script"
        for name in names:
            if name.casefold() in seen:
                yield f"{name} stands there twice"
            seen.add(name.casefold())
        if label.casefold() < first:
            yield f"{label} stands behind {first}"
        first = label.casefold()


def test_entries_are_whole_sorted_and_single() -> None:
    assert len(ENTRIES) > 200
    assert list(faults(ENTRIES)) == []


def unused(entries: Iterable[Entry], text: str) -> list[str]:
    """Entries of which no English name occurs in a text."""
    plain = " ".join(text.replace("*", "").casefold().split())
    return [e.english[0] for e in entries if not any(n.casefold() in plain for n in e.english)]


def test_every_entry_is_used() -> None:
    pages = [p for p in BOOK.glob("*.md") if p.name != "notation.md"]
    text = "\n".join(map(prose_of, [*NOTEBOOKS, *pages]))
    assert unused(ENTRIES, text) == []
    assert unused([Entry(("flux", "a capacitor"), (), (), "")], "no flu,\nx\ncapacitor") == ["flux"]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_chapter_names_terms(path: Path) -> None:
    text = hygiene.without_inline_code(prose_of(path))
    found = {entry.english[0] for _, _, entry in glossary.Finder(ENTRIES, False).find(text)}
    assert len(found) >= 15, sorted(found)


def test_the_chapters_are_found() -> None:
    assert len(CHAPTERS) >= 18


def bold_words(text: str) -> Iterator[str]:
    """What is set in bold as a term is: up to three words, and no sentence."""
    for found in re.findall(r"\*\*(?!\s)([^*]+?)\*\*", text):
        words = " ".join(found.casefold().split()).removesuffix("'s")
        words = re.sub(r"^(a|an|the) ", "", words)
        if len(words) > 1 and len(words.split()) <= 3 and re.fullmatch(r"[\w' -]+", words):
            yield words


def missing(text: str) -> set[str]:
    names = {name.casefold() for entry in ENTRIES for name in entry.english}
    return {w for w in bold_words(text) if not {w, w.removesuffix("s")} & names} - NO_TERMS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_terms_in_bold_are_in_the_glossary(path: Path) -> None:
    lost = missing(prose_of(path))
    assert lost == set(), (
        f"{path.name} sets {', '.join(sorted(lost))} in bold. Give a term an entry in the glossary "
        "of book/notation.md; add a word that is only emphasized to NO_TERMS in this file"
    )
