"""Writes the lists of statements, English and Chinese: `python book/_tools/claims.py`.

The statements and the places that settle them stand in book/coverage.yml, the verdicts in
book/claims.yml; a verdict that rests on a run quotes a finding. This command makes Markdown cells
of book/claims.ipynb of them, and the cell that counts them; run
`python book/_tools/execute.py book/claims.ipynb` afterwards. With the translations of
book/zh/claims.yml it makes the list of book/zh/claims.md. The tests compare both pages with what
this command would write.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from normlab.book.sources.quoting import NUMBER, read_findings

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
NOTEBOOK = BOOK / "claims.ipynb"
PAGE = "book/claims"
CHINESE_PAGE = BOOK / "zh" / "claims.md"
# Sections that have a Chinese counterpart; what a page leads to is that, where there is one.
CHINESE_LABELS = frozenset(
    label
    for page in (BOOK / "zh").glob("*.md")
    for label in re.findall(r"^\(([\w-]+)\)=$", page.read_text(encoding="utf-8"), re.MULTILINE)
)
VERDICTS = {"true": "True", "false": "False", "depends": "It depends"}
GENERATED = "list-"  # how the ids of the generated cells begin
COUNTS, PLACES = "counts", "places"
BELIEVED = f"{GENERATED}believed"
QUOTED = re.compile(r"\{finding\}`([\w-]+)`")
TOPICS = ("batch", "layer", "why", "late")  # of what many believe, in the order of the page
WIDTH = 96
# What stands between two of these comments of the Chinese page is generated.
BEGIN, END = "% generated: the list of statements", "% generated: end"
BEGIN_BELIEVED = "% generated: what many believe"


@dataclass(frozen=True)
class Wording:
    """What a page says around the statements; `titles` are those of sections, by their labels."""

    verdicts: Mapping[str, str] = field(default_factory=lambda: VERDICTS)
    prefix: str = ""
    folder: str = ""
    settled: str = "Settled by {place}."
    cell: str = "the cell `{cell}` in {place}"
    both: str = " and "
    comma: str = ", "
    here: str = "Tried {{ref}}`on this page <{anchor}>`."
    test: str = "Guarded by `{test}`."
    source: str = "Source: {{cite:t}}`{keys}`."
    between: str = " "
    chapter: str = "Settled in [this chapter]({file})."
    shown: str = "Shown in {place}."
    above: str = "Above: {links}."
    note: str = "{note}"
    fold: str = "{count} statements"
    fold_one: str = "1 statement"
    topics: tuple[str, ...] = (
        "Batch norm",
        "Layer norm",
        "Why norms help, and where",
        "RMS norm, DeepNorm and warmup",
    )
    people: tuple[str, str] = ("People and words", "Settled by the sources themselves.")
    contradictions: tuple[str, str] = (
        "Contradictions",
        "Two statements, each met as the truth, that cannot both hold as they stand.",
    )
    titles: Mapping[str, str] | None = None

    def join(self, links: list[str]) -> str:
        return self.both.join([self.comma.join(links[:-1]), links[-1]] if links[1:] else links)

    def name_chapter(self, page: str) -> str:
        label = page.rpartition("/")[2].replace("_", "-")
        return read_title(page) if self.titles is None else self.titles[label]

    def refer_to(self, anchor: str) -> str:
        if self.titles is None:
            return f"{{ref}}`{anchor}`"
        if f"{self.prefix}{anchor}" in CHINESE_LABELS:
            return f"“{{ref}}`{self.prefix}{anchor}`”一节"
        return f"“{{ref}}`{self.titles[anchor]} <{anchor}>`”一节"


ENGLISH = Wording()
CHINESE = Wording(
    verdicts={"true": "成立", "false": "不成立", "depends": "视情况而定"},
    prefix="zh-",
    folder="../",
    settled="依据：{place}。",
    cell="{place}的代码单元 `{cell}`",
    both="、",
    comma="、",
    here="{{ref}}`本页也试过 <{anchor}>`。",
    test="测试 `{test}` 守护这一更正。",
    source="来源：{{cite:t}}`{keys}`。",
    between="",
    chapter="由[这一章]({file})裁定。",
    shown="见{place}。",
    above="上文已有：{links}。",
    note="笔记原句：{note}",
    fold="{count} 条说法",
    fold_one="1 条说法",
    topics=("批归一化", "层归一化", "归一化为什么有效，用在哪里", "RMSNorm、DeepNorm 与预热"),
    people=("人物与用语", "由文献本身裁定。"),
    contradictions=("矛盾", "每条有两种说法，各自都被当成正确的，但照原话不可能同时成立。"),
    titles=yaml.safe_load((BOOK / "zh" / "titles.yml").read_text(encoding="utf-8")),
)


@dataclass(frozen=True)
class Claim:
    """One statement with its verdict and the place that settles it.

    `page` and `anchor` are empty for a contradiction, which `see` refers to other statements.
    `topic` is one of :data:`TOPICS` if many people believe it: it then stands above the archive.
    `note` has the words of the note that the statement was met in, if they are Chinese.
    """

    id: str
    statement: str
    verdict: str
    correction: str
    sources: tuple[str, ...] = ()
    page: str = ""
    anchor: str = ""
    cell: str = ""
    here: str = ""
    test: str = ""
    see: tuple[str, ...] = ()
    topic: str = ""
    note: str = ""


def read_claims(book: Path = BOOK) -> list[Claim]:
    """All statements, in the order of claims.yml.

    Raises:
        KeyError: a statement is not in coverage.yml, or a verdict lacks a part.
        TypeError: an entry has a part that is not known.
    """
    verdicts = yaml.safe_load((book / "claims.yml").read_text(encoding="utf-8"))
    places = yaml.safe_load((book / "coverage.yml").read_text(encoding="utf-8"))
    return [make_claim(id, dict(entry), places) for id, entry in verdicts.items()]


def make_claim(id: str, entry: dict[str, Any], places: Mapping[str, Mapping[str, str]]) -> Claim:
    place = {} if "claim" in entry else places[id]
    return Claim(
        id,
        statement=entry.pop("claim", None) or place["claim"],
        verdict=str(entry.pop("verdict")),
        correction=entry.pop("correction").strip(),
        sources=tuple(entry.pop("sources")),
        see=tuple(entry.pop("see", ())),
        page=place.get("page", ""),
        anchor=place.get("anchor", ""),
        cell=place.get("cell", ""),
        **entry,
    )


def quote_finding(name: str) -> str:
    """The sentence of a finding, and its kind, as a notebook on another page says it.

    Raises:
        ValueError: there is no such finding.
    """
    for page in sorted(BOOK.glob("*.ipynb")):
        for one in read_findings(page, [name], bind=False):
            sentence = NUMBER.sub(rf"{{glue:text}}`{page.name}::\1:s`", one.sentence)
            return f"{sentence} *({one.kind})*"
    raise ValueError(f"no finding is called {name}")


def group_by_page(claims: list[Claim]) -> dict[str, list[Claim]]:
    """Claims by the page that settles them, in the order of the book; contradictions at the end."""
    toc = re.findall(r"file: *(\S+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
    groups: dict[str, list[Claim]] = {page: [] for page in toc}
    # What this page settles itself comes behind the chapters.
    groups[PAGE] = groups.pop(PAGE, [])
    for claim in claims:
        groups.setdefault(claim.page, []).append(claim)
    return {page: members for page, members in groups.items() if members}


def read_title(page: str) -> str:
    cells = json.loads((ROOT / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    found = re.search(r"^# (.+)$", "".join(cells[0]["source"]), flags=re.MULTILINE)
    if found is None:
        raise ValueError(f"{page}: the first cell has no title")
    return found[1]


def read_translations(book: Path = BOOK) -> dict[str, dict[str, str]]:
    """Chinese statements and corrections by their ids; see the head of book/zh/claims.yml."""
    return yaml.safe_load((book / "zh" / "claims.yml").read_text(encoding="utf-8"))


def translate(claims: list[Claim], translations: Mapping[str, Mapping[str, str]]) -> list[Claim]:
    """The claims with the Chinese statements and corrections."""
    return [
        replace(
            c,
            statement=(to := translations[c.id])["claim"],
            correction=to["correction"],
            note=to.get("note", ""),
        )
        for c in claims
    ]


def fingerprint(claim: Claim) -> str:
    """Changes with the English text, so that a translation knows which one it was made from."""
    return hashlib.sha256(f"{claim.statement}\n{claim.correction}".encode()).hexdigest()[:8]


def render_claim(claim: Claim, words: Wording = ENGLISH) -> str:
    """One item of a list: verdict and statement, correction, and what settles it."""
    badge = f"[{words.verdicts[claim.verdict]}]{{.verdict .verdict-{claim.verdict}}}"
    name = f"[{claim.id}]{{#{words.prefix}claim-{claim.id} .claim-id}}"
    correction = claim.correction
    if words is ENGLISH:  # a notebook, where the role would stand as an id
        correction = QUOTED.sub(lambda quoted: quote_finding(quoted[1]), correction)
    settled = []
    if claim.topic:
        settled.append(words.shown.format(place=words.refer_to(claim.anchor)))
    elif claim.see:
        links = [f"[{i}](#{words.prefix}claim-{i})" for i in claim.see]
        settled.append(words.settled.format(place=words.join(links)))
    elif claim.page != PAGE:
        place = words.refer_to(claim.anchor)
        if claim.cell:
            place = words.cell.format(cell=claim.cell, place=place)
        settled.append(words.settled.format(place=place))
    if claim.here and not claim.topic:
        settled.append(words.here.format(anchor=f"{words.prefix}claims-{claim.here}"))
    if claim.test and not claim.topic:
        settled.append(words.test.format(test=claim.test))
    if claim.sources and not claim.topic:
        settled.append(words.source.format(keys=",".join(claim.sources)))
    reasons = words.between.join(settled)
    note = words.note.format(note=claim.note) if claim.note else ""
    paragraphs = [f"- {badge} {name} **{claim.statement}**", note, correction, reasons]
    return "\n\n  ".join(paragraph for paragraph in paragraphs if paragraph)


def render_group(page: str, claims: list[Claim], words: Wording = ENGLISH) -> str:
    """One section of the list."""
    name = page.rpartition("/")[2]
    if not page:
        anchor, (title, lead) = "contradictions", words.contradictions
    elif page == PAGE:
        anchor, (title, lead) = "people", words.people
    else:
        anchor, title = f"about-{name.replace('_', '-')}", words.name_chapter(page)
        lead = words.chapter.format(file=f"{words.folder}{name}.ipynb")
    archived = [claim for claim in claims if not claim.topic]
    text = f"({words.prefix}claims-{anchor})=\n### {title}\n\n{lead}"
    if len(archived) < len(claims):
        links = [f"[{c.id}](#{words.prefix}claim-{c.id})" for c in claims if c.topic]
        text += words.between + words.above.format(links=words.join(links))
    if not archived:
        return text
    items, fold = render_items(archived, words), words.fold if archived[1:] else words.fold_one
    return f"{text}\n\n:::{{dropdown}} {fold.format(count=len(archived))}\n{items}\n:::"


def render_items(claims: list[Claim], words: Wording) -> str:
    items = "\n\n".join(render_claim(claim, words) for claim in claims)
    return f"{{.claims}}\n{items}"


def render_believed(claims: list[Claim], words: Wording = ENGLISH) -> str:
    """What many people believe, by topic."""
    parts = []
    for topic, title in zip(TOPICS, words.topics, strict=True):
        members = [claim for claim in claims if claim.topic == topic]
        if members:
            label = f"({words.prefix}claims-on-{topic})="
            parts.append(f"{label}\n### {title}\n\n{render_items(members, words)}")
    return "\n\n".join(parts)


def render_counts(claims: list[Claim]) -> str:
    """The cell that counts verdicts."""
    lines = ["verdicts = {"]
    for verdict, words in VERDICTS.items():
        ids = " ".join(claim.id for claim in claims if claim.verdict == verdict)
        lines += [f'    "{words.lower()}": """', *wrap(ids, "        "), '    """,']
    lines += ["}", "counts = {verdict: len(ids.split()) for verdict, ids in verdicts.items()}"]
    lines += ["for verdict, count in counts.items():"]
    lines += ['    glue(verdict.replace(" ", "-"), count)']
    lines += ['glue("all-verdicts", sum(counts.values()))']
    lines += ["rows = {verdict: [count] for verdict, count in counts.items()}"]
    lines += ['tabulate(rows, ["statements"], corner="verdict")']
    return "\n".join(lines)


def render_places(claims: list[Claim]) -> str:
    """The cell that counts statements by the chapter that settles them."""
    lines = ["settled = {"]
    for page, members in group_by_page(claims).items():
        if page and page != PAGE:
            lines.append(f'    "{read_title(page)}": {len(members)},')
    lines += ["}", "rows = {title: [count] for title, count in settled.items()}"]
    return "\n".join([*lines, 'tabulate(rows, ["statements"], corner="chapter")'])


def wrap(words: str, indent: str) -> Iterator[str]:
    line = indent.rstrip()
    for word in words.split():
        if len(line) + 1 + len(word) > WIDTH:
            yield line
            line = indent.rstrip()
        line = f"{line or indent[:-1]} {word}"
    yield line


def render(claims: list[Claim]) -> dict[str, str]:
    """Sources of the generated cells by their ids, in order."""
    cells = {COUNTS: render_counts(claims), PLACES: render_places(claims)}
    cells[BELIEVED] = render_believed(claims)
    for page, members in group_by_page(claims).items():
        name = page.rpartition("/")[2] or "contradictions"
        cells[f"{GENERATED}{name}"] = render_group(page, members)
    return cells


def fill_chinese_page(text: str, claims: list[Claim]) -> str:
    """The Chinese page with the lists of these claims, which are Chinese, between its marks."""
    groups = group_by_page(claims).items()
    sections = "\n\n".join(render_group(page, members, CHINESE) for page, members in groups)
    for begin, filling in ((BEGIN_BELIEVED, render_believed(claims, CHINESE)), (BEGIN, sections)):
        before, found, rest = text.partition(begin)
        _, end, after = rest.partition(END)
        if not (found and end):
            raise ValueError(f"{CHINESE_PAGE.name} needs the lines {begin!r} and {END!r}")
        text = f"{before}{begin}\n\n{filling}\n\n{end}{after}"
    return text


def main() -> int:
    """Write both pages."""
    claims = read_claims()
    fill_notebook(claims)
    page = CHINESE_PAGE.read_text(encoding="utf-8")
    page = fill_chinese_page(page, translate(claims, read_translations()))
    CHINESE_PAGE.write_text(page, encoding="utf-8")
    return 0


def fill_notebook(claims: list[Claim]) -> None:
    """Replace the generated cells of the notebook, behind the cells "believed" and "statements"."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    sources = render(claims)
    kept = [c for c in notebook["cells"] if not c["id"].startswith(GENERATED)]
    for cell in kept:
        if cell["id"] in sources:
            cell["source"] = sources[cell["id"]].splitlines(keepends=True)
    for anchor, ids in (("believed", {BELIEVED}), ("statements", set(sources) - {BELIEVED})):
        (at,) = (i for i, cell in enumerate(kept, start=1) if cell["id"] == anchor)
        kept[at:at] = [
            {
                "cell_type": "markdown",
                "id": id,
                "metadata": {},
                "source": text.splitlines(keepends=True),
            }
            for id, text in sources.items()
            if id.startswith(GENERATED) and id in ids
        ]
    notebook["cells"] = kept
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
