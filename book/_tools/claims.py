"""Writes the list of statements into book/claims.ipynb: `python book/_tools/claims.py`.

The statements and the places that settle them stand in book/coverage.yml, the verdicts in
book/claims.yml. This command makes Markdown cells of them, and the cell that counts them; run
`python book/_tools/execute.py book/claims.ipynb` afterwards. The tests compare the notebook with
what this command would write.
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

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
NOTEBOOK = BOOK / "claims.ipynb"
PAGE = "book/claims"
VERDICTS = {"true": "True", "false": "False", "depends": "It depends"}
GENERATED = "list-"  # how the ids of the generated cells begin
COUNTS, PLACES = "counts", "places"
WIDTH = 96


@dataclass(frozen=True)
class Claim:
    """One statement with its verdict and the place that settles it.

    `page` and `anchor` are empty for a contradiction, which `see` refers to other statements.
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


def render_claim(claim: Claim) -> str:
    """One item of a list: verdict and statement, correction, and what settles it."""
    badge = f"[{VERDICTS[claim.verdict]}]{{.verdict .verdict-{claim.verdict}}}"
    name = f"[{claim.id}]{{#claim-{claim.id} .claim-id}}"
    settled = []
    if claim.see:
        settled.append(f"Settled by {' and '.join(f'[{i}](#claim-{i})' for i in claim.see)}.")
    elif claim.page != PAGE:
        place = f"the cell `{claim.cell}` in " if claim.cell else ""
        settled.append(f"Settled by {place}{{ref}}`{claim.anchor}`.")
    if claim.here:
        settled.append(f"Tried {{ref}}`on this page <claims-{claim.here}>`.")
    if claim.test:
        settled.append(f"Guarded by `{claim.test}`.")
    if claim.sources:
        settled.append(f"Source: {{cite:t}}`{','.join(claim.sources)}`.")
    paragraphs = [f"- {badge} {name} **{claim.statement}**", claim.correction, " ".join(settled)]
    return "\n\n  ".join(paragraph for paragraph in paragraphs if paragraph)


def render_group(page: str, claims: list[Claim]) -> str:
    """One section of the list."""
    name = page.rpartition("/")[2]
    if not page:
        anchor, title = "contradictions", "Contradictions"
        lead = "Two statements, each met as the truth. Where one is wrong, so is the pair."
    elif page == PAGE:
        anchor, title, lead = "people", "People and words", "Settled by the sources themselves."
    else:
        anchor, title = f"about-{name.replace('_', '-')}", read_title(page)
        lead = f"Settled in [this chapter]({name}.ipynb)."
    items = "\n\n".join(map(render_claim, claims))
    return f"(claims-{anchor})=\n### {title}\n\n{lead}\n\n{{.claims}}\n{items}"


def render_counts(claims: list[Claim]) -> str:
    """The cell that counts verdicts."""
    lines = ["verdicts = {"]
    for verdict, words in VERDICTS.items():
        ids = " ".join(claim.id for claim in claims if claim.verdict == verdict)
        lines += [f'    "{words.lower()}": """', *wrap(ids, "        "), '    """,']
    lines += ["}", "for verdict, ids in verdicts.items():"]
    lines += ['    glue(verdict.replace(" ", "-"), len(ids.split()))']
    lines += ['    print(f"{verdict:10} {len(ids.split()):3}")']
    lines += ['glue("all-verdicts", len(" ".join(verdicts.values()).split()))']
    return "\n".join(lines)


def render_places(claims: list[Claim]) -> str:
    """The cell that counts statements by the chapter that settles them."""
    lines = ["settled = {"]
    for page, members in group_by_page(claims).items():
        if page and page != PAGE:
            lines.append(f'    "{page.rpartition("/")[2]}": {len(members)},')
    lines += ["}", "for chapter, count in settled.items():"]
    return "\n".join([*lines, '    print(f"{chapter:18}{count:3}")'])


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
    for page, members in group_by_page(claims).items():
        name = page.rpartition("/")[2] or "contradictions"
        cells[f"{GENERATED}{name}"] = render_group(page, members)
    return cells


def main() -> int:
    """Replace the generated cells of the notebook; the lists go behind the cell "statements"."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    sources = render(read_claims())
    kept = [c for c in notebook["cells"] if not c["id"].startswith(GENERATED)]
    for cell in kept:
        if cell["id"] in sources:
            cell["source"] = sources[cell["id"]].splitlines(keepends=True)
    (at,) = (i for i, cell in enumerate(kept, start=1) if cell["id"] == "statements")
    kept[at:at] = [
        {
            "cell_type": "markdown",
            "id": id,
            "metadata": {},
            "source": text.splitlines(keepends=True),
        }
        for id, text in sources.items()
        if id.startswith(GENERATED)
    ]
    notebook["cells"] = kept
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
