"""What a digest may say: `python book/_tools/digests.py` prints what goes beyond the evidence.

A digest is a page, or a part of one, that repeats in short what a chapter shows: a guide, a table,
a take-away. It quotes counts such as "5 of 5" from book/evidence.ipynb; book/digests.yml says what
has to stand beside each. A unit is a row, an item of a list or a paragraph.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

BOOK = Path(__file__).resolve().parents[1]
WHOLE = ("cheat_sheet", "decision_guide")
# Parts of other pages are digests if their label is one of these.
PARTS = re.compile(
    r"\((?:zh-)?(?:[\w-]+-(?:status|takeaway)|bvl-(?:explanations|rule|table)|claims-believed)\)="
)
QUOTE = re.compile(r"\{glue:text\}`(?:\.\./)?evidence\.ipynb::([\w-]+?)(?:-n|-of)?:s`")
LINK = re.compile(r"\{ref\}`(?:[^`<]*<)?([\w-]+)>?`")
ROLE = re.compile(r"\{[\w:]+\}`(?:([^`<]*?) *<[^`>]+>|[^`]+)`")
_NUMBERS = r"\d+|one|two|three|four|five|six|ten|twenty"
# A count of runs that somebody typed. "Five seeds" alone is a condition.
TYPED = {
    "en": re.compile(
        rf"\b(?:{_NUMBERS}|all|none) of (?:the |all )?(?:{_NUMBERS})\b(?! rates)"
        r"|\b(?:all|any|both|each|every|no)(?: of)?(?: the| its)?"
        rf"(?: (?:{_NUMBERS}))? (?:seed|run)s?\b",
        re.IGNORECASE,
    ),
    "zh": re.compile(
        r"[一二三四五六十两\d]+个(?:随机)?种子中|(?:每个|全部|所有)[^，。；|]{0,4}种子"
    ),
}
UNIVERSAL = {
    "en": re.compile(r"\b(?:all|always|both|every|never|none)\b(?!-)", re.IGNORECASE),
    "zh": re.compile(r"都|全部|所有|从不|从未|总是|始终"),
}
# These words count no runs where they stand before the cells of an array, ...
_CELLS = "axes|channels|devices|features|inputs|modes|positions|samples|tokens|weights"
CELLS = re.compile(
    rf"\b(?:all|both|every)(?: \w+)? (?:{_CELLS}|{_CELLS.replace('s|', '|')[:-1]})\b"
    r"|所有(?:样本|位置|特征|词元|输入|句子)",
    re.IGNORECASE,
)
# ... or where the row says that it is proved or defined.
PROVED = re.compile(r"\b(?:by the formula|definition|proved|theorem)\b|已证|由公式")


@dataclass(frozen=True)
class Rules:
    """What has to stand beside each count, and the words "all" and "never" that count no runs."""

    counts: Mapping[str, Mapping[str, Any]]
    free: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Unit:
    """One row, item or paragraph of a page; `is_digest` if it is in a digest."""

    page: str
    text: str
    is_digest: bool

    @property
    def language(self) -> str:
        return "zh" if self.page.startswith("zh/") else "en"

    @property
    def quoted(self) -> set[str]:
        return set(QUOTE.findall(self.text))


def read_rules() -> Rules:
    entries = yaml.safe_load((BOOK / "digests.yml").read_text(encoding="utf-8"))
    free: dict[str, tuple[str, ...]] = {}
    for entry in entries["free"]:
        for page, phrases in entry["pages"].items():
            free[page] = (*free.get(page, ()), *phrases)
    return Rules(entries["counts"], free)


def read_counts() -> dict[str, tuple[int, int]]:
    """What book/evidence.ipynb has counted: name -> (n, N)."""
    cells = json.loads((BOOK / "evidence.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = (o for c in cells for o in c.get("outputs", ()))
    bound = {
        output["metadata"]["scrapbook"]["name"]: "".join(*output["data"].values())
        for output in outputs
        if "scrapbook" in output.get("metadata", {})
    }
    names = [name.removesuffix("-of") for name in bound if name.endswith("-of")]
    return {name: (int(bound[f"{name}-n"]), int(bound[f"{name}-of"])) for name in names}


def read_page(page: str) -> str:
    """The text of a page; of a notebook, what stands in its Markdown cells."""
    path = BOOK / f"{page}.md"
    if path.exists():
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    prose = ("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return "\n\n".join(prose)


def find_pages() -> list[str]:
    paths = [*BOOK.glob("*.md"), *BOOK.glob("*.ipynb"), *BOOK.glob("zh/*.md")]
    return sorted(path.relative_to(BOOK).with_suffix("").as_posix() for path in paths)


def split_units(page: str, text: str) -> Iterator[Unit]:
    """Rows, items and paragraphs in order, without listings, comments and formulas."""
    text = re.sub(
        r"^```(?!\{(?:admonition|dropdown|exercise|figure))[^\n]*\n.*?^```$",
        "",
        text,
        flags=re.M | re.S,
    )
    text = re.sub(r"\n\n(?=  \S)", "\n", text)  # paragraphs of one item
    digest_level = 1 if page in WHOLE else 0
    lines: list[str] = []
    label = ""
    for line in [*text.splitlines(), ""]:
        starts = re.match(r"\||[*-] |\d+\. |: |%|#|\(", line)
        if (starts or not line.strip()) and lines:
            yield Unit(page, " ".join(lines), bool(digest_level))
            lines = []
        if heading := re.match(r"(#+) ", line):
            level = len(heading[1])
            if page not in WHOLE:
                if digest_level and level <= digest_level:
                    digest_level = 0
                if PARTS.fullmatch(label):
                    digest_level = level
            label = ""
        elif re.fullmatch(r"\([\w-]+\)=", line):
            label = line
        elif (
            line.strip()
            and not line.startswith(("%", ":::", "```"))
            and not re.match(r"\|[-: |]+$", line)
        ):
            lines.append(line.strip())


def check_unit(unit: Unit, rules: Rules, counts: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """What a unit says beyond its evidence."""
    said = " ".join(ROLE.sub(lambda m: m[1] or " ", unit.text).split())
    for name in sorted(unit.quoted):
        rule = rules.counts.get(name)
        if rule is None or (rule["count"] != "figure" and name not in counts):
            yield f"quotes {name}, which is not in digests.yml and evidence.ipynb"
            continue
        for condition in rule["say"][unit.language]:
            if not any(words in said for words in condition.split("|")):
                yield f"quotes {name} without its condition {condition!r}"
        links = {link.removeprefix("zh-") for link in LINK.findall(unit.text)}
        if rule["place"] not in links:
            yield f"quotes {name} without a link to {rule['place']}"
    if not unit.is_digest:
        return
    for phrase in sorted(rules.free.get(unit.page, ()), key=len, reverse=True):
        said = said.replace(phrase, " ")
    for typed in TYPED[unit.language].finditer(said):
        yield f"types the count {typed[0]!r}; quote it from evidence.ipynb"
    known = [counts[name] for name in unit.quoted if name in counts]
    if any(n in (0, of) for n, of in known):
        return
    if PROVED.search(said):
        return
    said = CELLS.sub(" ", re.sub(r"`[^`]*`", " ", said))
    for word in UNIVERSAL[unit.language].finditer(said):
        yield f"says {word[0]!r}, and no count in it is full or zero: {said[:70]}"


def find_complaints(
    pages: Mapping[str, str], rules: Rules, counts: Mapping[str, tuple[int, int]]
) -> list[str]:
    """What is wrong with the digests of these pages, one sentence each."""
    units = [unit for page, text in pages.items() for unit in split_units(page, text)]
    found = [f"{u.page}: {c}" for u in units for c in check_unit(u, rules, counts)]
    for name, rule in rules.counts.items():
        n, of = counts.get(name, (0, 0))
        kind = "all" if n == of else "none" if not n else "some"
        if rule["count"] not in ("figure", kind):
            found.append(
                f"{name}: {n} of {of}, which is {kind}; its rows were written for {rule['count']}"
            )
        quoting = {u.page for u in units if name in u.quoted}
        found += [f"{p}: does not quote {name}" for p in rule["quoted"] if p not in quoting]
    for page, phrases in rules.free.items():
        text = " ".join(ROLE.sub(lambda m: m[1] or " ", pages[page]).split())
        found += [f"{page}: {p!r} stands in digests.yml only" for p in phrases if p not in text]
    return found


def main() -> int:
    pages = {page: read_page(page) for page in find_pages()}
    complaints = find_complaints(pages, read_rules(), read_counts())
    print("\n".join(complaints) or "the digests say what their evidence says")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
