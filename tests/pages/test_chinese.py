"""The Chinese pages say what the English ones say, with numbers from the same cells."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from loading import load

from normlab.book.sources import read_findings

markdown_it = pytest.importorskip("markdown_it", reason="jupyter-book is not installed")

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
FINDINGS = BOOK / "zh" / "findings.md"  # of chapters that have no Chinese page
NOTES = set((BOOK / "zh").glob("note_*.md"))  # have no English counterpart; see test_notes.py
PAGES = sorted(set((BOOK / "zh").glob("*.md")) - NOTES - {FINDINGS, BOOK / "zh" / "index.md"})
TRANSLATED = yaml.safe_load((BOOK / "zh" / "translated.yml").read_text(encoding="utf-8"))
LINK_BACK = re.compile(r"\[[^\]]*\]\(zh/\w+\.md\)\n*")

ROLE = re.compile(r"\{([\w:]+)\}`(?:[^`<]*<)?([^`>]+)>?`|(?:\]\(|\{)#([\w-]+)")
CELL = re.compile(r"^\s*`{3,}\{cell\} (\S+) (\S+)$", re.MULTILINE)
SHOWN = re.compile(r"^\s*`{3,}\{cell\} \S+ (\S+)\n(?!:show: source)", re.MULTILINE)
GLUE = re.compile(r"\{glue:\w+\}`([^`]*)`")
# How often both languages have to have what; English first.
COUNTED = {
    "rows of tables": (r"^\|", r"^\|"),
    "items of lists": (r"^(?:[-*]|\d+\.) ", r"^(?:[-*]|\d+\.) "),
    "theorems": (
        r"\{prf:(?:corollary|lemma|proposition|theorem)\}",
        r"\{admonition\} (?:推论|引理|命题|定理)",
    ),
    "proofs": (r"\{prf:proof\}", r"\{dropdown\} 证明"),
    "exercises": (r"^(?:`{3,}|:{3,})\{exercise(?:-start)?\}", r"\{admonition\} 练习"),
}
HAN = r"[\u4e00-\u9fff]"
CHINESE = r"[\u3001-\u3011\u4e00-\u9fff\uff00-\uffef]"


hygiene = load(BOOK / "_tools" / "hygiene.py")
claims = load(BOOK / "_tools" / "claims.py")


def read_cells(page: str) -> list[dict[str, Any]]:
    """The cells of an English page."""
    return json.loads((BOOK / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]


def read_keys(cells: list[dict[str, Any]]) -> set[str]:
    """What the cells bind with `glue`."""
    outputs = (output for cell in cells for output in cell.get("outputs", ()))
    names = (output.get("metadata", {}).get("scrapbook", {}).get("name") for output in outputs)
    return {name.rpartition("/")[2] for name in names if name}


def is_seen(cell: dict[str, Any]) -> bool:
    """Whether the cell shows something; a Chinese page has what is glued or quoted in its text."""
    if "".join(cell.get("source", "")).startswith("quote("):
        return False
    if "remove-cell" in cell.get("metadata", {}).get("tags", ()):
        return False
    return any(
        "scrapbook" not in output.get("metadata", {})
        and 'class="touch"' not in "".join(output.get("data", {}).get("text/html", ""))
        for output in cell["outputs"]
    )


def write_english(cells: list[dict[str, Any]]) -> str:
    """An English page as one text, with its cells shown as a Chinese page shows them."""
    return "\n\n".join(
        "".join(cell["source"])
        if cell["cell_type"] == "markdown"
        else f"```{{cell}} . {cell['id']}\n```"
        for cell in cells
        if cell["cell_type"] == "markdown" or is_seen(cell)
    )


def split_sections(text: str) -> list[str]:
    """The sections of a page without listings; the first is what stands above the title."""
    blocks = r"^(`{3,})(\{?)[^\n]*\n.*?^\1$"
    text = re.sub(blocks, lambda m: m[0] if m[2] else "", text, flags=re.MULTILINE | re.DOTALL)
    return re.split(r"^(?=#{1,6} )", text, flags=re.MULTILINE)


def read_targets(text: str) -> set[str]:
    """What a text names, links to, cites and prints, as far as both languages share it."""
    found = set()
    for role, target, anchor in ROLE.findall(text):
        if role.startswith("cite"):
            found |= set(target.split(","))
        elif role.startswith("glue"):
            found.add(re.sub(r"(?:-n|-of)?:s$", "", target.rpartition("::")[2]))
        elif role.startswith(("doc", "numref", "prf:ref", "py:", "ref")) or anchor:
            name = (target or anchor).removeprefix("../").removeprefix("zh-")
            found.add(name.replace("fig-zh-", "fig-"))
    return found


def read_numbers(text: str) -> set[str]:
    """Whole numbers in prose, outside code, mathematics and the numbers of lists."""
    prose = hygiene.without_inline_code(hygiene.without_code_blocks(text))
    prose = re.sub(r"^\d+\. |\{[^}]*\}|\[[\d-]+\]", " ", prose, flags=re.MULTILINE)
    return set(re.findall(r"(?<![A-Za-z0-9_.,-])\d+(?![A-Za-z0-9_.-]| million)", prose))


def find_gaps(english: str, chinese: str) -> list[str]:
    """What the English page has and the Chinese one has not."""
    ours, theirs = split_sections(english), split_sections(chinese)
    levels = [[len(s) - len(s.lstrip("#")) for s in sections] for sections in (ours, theirs)]
    if levels[0] != levels[1]:
        return [f"sections of the levels {levels[1]}; expected {levels[0]}"]
    gaps = []
    for source, translation in zip(ours, theirs, strict=True):
        title = source.partition("\n")[0].lstrip("# ")
        for name, patterns in COUNTED.items():
            counts = [
                len(re.findall(p, t, flags=re.MULTILINE))
                for p, t in zip(patterns, (source, translation), strict=True)
            ]
            if counts[0] != counts[1]:
                gaps.append(f"{title}: {counts[1]} {name}; expected {counts[0]}")
        rows = [[r for r in t.splitlines() if r.startswith("|")] for t in (source, translation)]
        for row, translated in zip(*rows, strict=False):
            if lost := read_targets(row) - read_targets(translated):
                gaps.append(f"{title}: the row {translated[:30]} lacks {sorted(lost)}")
        if lost := read_targets(source) - read_targets(translation):
            gaps.append(f"{title}: lacks {sorted(lost)}")
        if lost := read_numbers(source) - set(re.findall(r"\d+", translation)):
            gaps.append(f"{title}: lacks the numbers {sorted(lost)}")
        shown = [[name for _, name in CELL.findall(text)] for text in (source, translation)]
        if shown[0] != [name for name in shown[1] if name in shown[0]]:
            gaps.append(f"{title}: shows the cells {shown[1]}; expected {shown[0]}")
    return gaps


def find_unbound(page: str, chinese: str, cells: list[dict[str, Any]]) -> list[str]:
    """Cells of the English page, and keys of any page, that the Chinese one names in vain."""
    ids = {cell["id"] for cell in cells if cell["cell_type"] == "code"}
    file = f"../{page}.ipynb"
    cells_shown = CELL.findall(chinese)
    lost = [f"no cell {id} in {path}" for path, id in cells_shown if path != file or id not in ids]
    silent = {cell["id"] for cell in cells if cell["cell_type"] == "code" and not is_seen(cell)}
    lost += [f"{id} has no outputs to show" for id in re.findall(SHOWN, chinese) if id in silent]
    pages = {page} | set(re.findall(r"`\.\./(\w+)\.ipynb::", chinese))
    cells_of = {name: cells if name == page else read_cells(name) for name in pages}
    known = {f"../{name}.ipynb::{key}:s" for name in pages for key in read_keys(cells_of[name])}
    return lost + [f"no key {key}" for key in GLUE.findall(chinese) if key not in known]


def find_slips(text: str, excused: set[str]) -> list[str]:
    """Numbers typed by hand, and marks and breaks that a Chinese page prints wrongly."""
    typed = hygiene.typed_decimals(re.sub(f"({HAN})", r" \1 ", text))
    slips = [f"types {number} by hand" for number in typed if number not in excused]
    prose = hygiene.without_inline_code(hygiene.without_code_blocks(text))
    patterns = {
        "a line broken between two characters, which prints a space": f"{CHINESE}\n *{CHINESE}",
        "an ASCII mark beside Chinese text": rf"{HAN}[,;:?!]|{HAN}\.(?!\w)|[,;?!] ?{HAN}",
        "a straight quotation mark, which turns to the wrong side": '"',
        "an exclamation mark": r"！",
    }
    for name, pattern in patterns.items():
        slips += [f"{name}: {m[0]!r}" for m in re.finditer(pattern, prose)]
    # Bold text neither begins nor ends where a mark stands inside and a character outside.
    tokens = markdown_it.MarkdownIt().parse(hygiene.without_code_blocks(text))
    left = [c.content for token in tokens for c in token.children or () if c.type == "text"]
    return slips + [f"stars that print as stars: {text!r}" for text in left if "**" in text]


def digest_prose(cells: list[dict[str, Any]]) -> dict[str, str]:
    """A short digest of each English cell of prose that a person translates."""
    texts = {
        cell["id"]: LINK_BACK.sub("", "".join(cell["source"]))
        for cell in cells
        if cell["cell_type"] == "markdown"
        and not cell["id"].startswith("list-")
        and "remove-cell" not in cell.get("metadata", {}).get("tags", ())
    }
    return {id: hashlib.sha256(text.encode()).hexdigest()[:8] for id, text in texts.items()}


@pytest.fixture(params=PAGES, ids=lambda path: path.stem)
def page(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_nothing_is_left_out(page: Path) -> None:
    english = write_english(read_cells(page.stem))
    for name in re.findall(r"\{finding\}`([\w-]+)`", page.read_text(encoding="utf-8")):
        english = english.replace(claims.quote_finding(name), f"{{finding}}`{name}`")
    assert find_gaps(english, page.read_text(encoding="utf-8")) == []


def test_cells_and_keys_exist(page: Path) -> None:
    chinese = page.read_text(encoding="utf-8")
    assert find_unbound(page.stem, chinese, read_cells(page.stem)) == []
    assert CELL.search(chinese) and GLUE.search(chinese)


def test_prose_has_no_slips(page: Path) -> None:
    listed = hygiene.load_typed_numbers()
    excused = {entry["number"] for entry in listed if entry["notebook"] == page.stem}
    assert find_slips(page.read_text(encoding="utf-8"), excused) == []


def test_pages_link_to_each_other(page: Path) -> None:
    opening = "".join(read_cells(page.stem)[0]["source"])
    assert f"(zh/{page.name})" in opening
    assert f"../{page.stem}" in page.read_text(encoding="utf-8").partition("\n## ")[0]


def test_translation_is_of_this_text(page: Path) -> None:
    now = digest_prose(read_cells(page.stem))
    stale = {id: digest for id, digest in now.items() if TRANSLATED[page.stem].get(id) != digest}
    assert stale == {}, (
        f"the English text changed: change {page} likewise, then these lines of translated.yml"
    )
    assert TRANSLATED[page.stem].keys() == now.keys()


def digest_findings(names: list[str]) -> dict[str, str]:
    """A short digest of each English finding, its numbers by their names."""
    chapters = (BOOK / f"{path.stem}.ipynb" for path in BOOK.glob("*.ipynb"))
    ours = (one for path in chapters for one in read_findings(path, names, bind=False))
    texts = {one.name: f"{one.sentence} {one.conditions}".rstrip() for one in ours}
    return {name: hashlib.sha256(text.encode()).hexdigest()[:8] for name, text in texts.items()}


def test_each_chinese_finding_is_of_this_sentence() -> None:
    text = FINDINGS.read_text(encoding="utf-8")
    names = re.findall(r"^:::\{finding\} (\S+)", text, flags=re.MULTILINE)
    assert TRANSLATED[FINDINGS.stem] == digest_findings(names)
    assert set(names) == set(TRANSLATED[FINDINGS.stem])
    for path, key in re.findall(r"`\.\./(\w+)\.ipynb::([\w-]+):s`", text):
        assert key in read_keys(read_cells(path)), (path, key)
    assert find_slips(text, set()) == []
