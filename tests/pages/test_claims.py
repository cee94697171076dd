"""The page of claims: complete, in step with its data, and pointing at things that exist."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loading import load

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"


tool = load(BOOK / "_tools" / "claims.py")
coverage = load(Path(__file__).with_name("test_coverage.py"))
STATEMENTS = {id for id in coverage.INVENTORY if not id.startswith("B-")}
CONTRADICTIONS = {f"contradiction-{i}" for i in range(1, 8)}


def tags_of(page: coverage.Page) -> set[str]:
    return {tag for section in page.values() for tag in section.tagged}


def find_complaints(claims: list[tool.Claim], pages: Any, bib_keys: set[str]) -> list[str]:
    """What is wrong with the claims, one sentence each."""
    ids = [claim.id for claim in claims]
    complaints = [f"{id}: missing" for id in STATEMENTS | CONTRADICTIONS if id not in ids]
    complaints += [f"{id}: stands more than once" for id in set(ids) if ids.count(id) > 1]
    tried = pages[tool.PAGE]
    for claim in claims:
        found = []
        if claim.verdict not in tool.VERDICTS:
            found.append(f"verdict {claim.verdict!r}; expected one of {sorted(tool.VERDICTS)}")
        if not claim.statement.strip() or not claim.correction.strip():
            found.append("an empty statement or correction")
        found += [f"no source {key!r} in references.bib" for key in {*claim.sources} - bib_keys]
        found += [f"refers to {id!r}, which is not there" for id in {*claim.see} - {*ids}]
        if bool(claim.page) == bool(claim.see):
            found.append("has to be settled by a place or by other statements")
        if claim.page and claim.anchor not in pages[claim.page]:
            found.append(f"no anchor {claim.anchor!r} in {claim.page}")
        if claim.page and claim.cell and claim.cell not in tags_of(pages[claim.page]):
            found.append(f"no cell {claim.cell!r} in {claim.page}")
        if claim.here and claim.here not in tags_of(tried):
            found.append(f"no cell {claim.here!r} on the page of claims")
        if claim.here and f"claims-{claim.here}" not in tried:
            found.append(f"no anchor 'claims-{claim.here}' on the page of claims")
        if claim.test and not coverage.is_test(claim.test):
            found.append(f"no test {claim.test!r}")
        complaints += [f"{claim.id}: {text}" for text in found]
    return sorted(complaints)


def test_every_statement_has_its_verdict() -> None:
    assert (
        find_complaints(tool.read_claims(), coverage.read_pages(), coverage.read_bib_keys()) == []
    )


def find_stale_cells(cells: list[dict[str, Any]], claims: list[tool.Claim]) -> list[str]:
    """Generated cells that are missing, left over, or say something else, by their ids."""
    stored = {cell["id"]: "".join(cell["source"]) for cell in cells}
    rendered = tool.render(claims)
    left = {id for id in stored if id.startswith(tool.GENERATED)} - set(rendered)
    return sorted(left | {id for id, text in rendered.items() if stored.get(id) != text})


def read_cells() -> list[dict[str, Any]]:
    return json.loads(tool.NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def test_the_page_is_in_step_with_its_data() -> None:
    stale = find_stale_cells(read_cells(), tool.read_claims())
    assert stale == [], "run book/_tools/claims.py, then execute.py on book/claims.ipynb"


def test_a_quoted_finding_says_how_far_it_goes() -> None:
    assert tool.quote_finding("deepnorm-cause").endswith("is open. *(conjectured)*")


def test_the_page_holds_every_statement_once() -> None:
    text = "\n".join("".join(c["source"]) for c in read_cells() if c["cell_type"] == "markdown")
    assert sorted(re.findall(r"\{#claim-(\S+) \.claim-id\}", text)) == sorted(
        STATEMENTS | CONTRADICTIONS
    )


def find_wordy(claims: list[tool.Claim]) -> list[str]:
    """Where what many believe is answered by more than a sentence, a finding and one link."""
    wordy = []
    for claim in claims:
        if not claim.topic:
            continue
        if claim.topic not in tool.TOPICS:
            wordy.append(f"{claim.id}: topic {claim.topic!r}; expected one of {tool.TOPICS}")
        answer = tool.render_claim(claim).partition("\n\n")[2]
        said = tool.QUOTED.sub("", claim.correction).strip()
        if said and len(re.findall(r"[.?](?:\s|$)", said)) != 1:
            wordy.append(f"{claim.id}: more than one sentence")
        if len(re.findall(r"\{ref\}|\{cite|\]\(", answer)) != 1:
            wordy.append(f"{claim.id}: more than one link")
    return wordy


def test_what_many_believe_has_one_sentence_and_one_link() -> None:
    claims = tool.read_claims()
    assert sum(bool(claim.topic) for claim in claims) == 25
    assert find_wordy(claims) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda c: replace(c, topic="rest"), "001-3: topic 'rest'"),
        (lambda c: replace(c, correction="One. And two."), "001-3: more than one sentence"),
        (
            lambda c: replace(c, correction="So; see {ref}`layer-norm`."),
            "001-3: more than one link",
        ),
    ],
)
def test_a_wordy_answer_is_found(
    change: Callable[[tool.Claim], tool.Claim], complaint: str
) -> None:
    claims = [change(c) if c.id == "001-3" else c for c in tool.read_claims()]
    assert [text[: len(complaint)] for text in find_wordy(claims)] == [complaint]


def test_what_many_believe_stands_first_and_the_rest_is_folded() -> None:
    claims = tool.read_claims()
    cells = {c["id"]: "".join(c["source"]) for c in read_cells()}
    assert list(cells).index(tool.BELIEVED) < list(cells).index("statements")
    for claim in claims:
        folded = ":::{dropdown}" in next(
            text for text in cells.values() if f"{{#claim-{claim.id} .claim-id}}" in text
        )
        assert folded != bool(claim.topic), claim.id


def test_wrong_statements_that_can_be_tested_are_tried() -> None:
    # These ids carry a T in the inventory.
    testable = (
        "000-24 000-25 001-2 001-3 001-10 001-12 001-16 002-3 003-13 003-14 003-19 003-23 "
        "004-5 004-8"
    )
    tried = {claim.id for claim in tool.read_claims() if claim.here}
    assert set(testable.split()) <= tried


def test_every_notebook_is_run_and_imports_the_package() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^\t\$\(PYTEST\) --nbval (?:[^\n]|\\\n)* book$", recipe, flags=re.MULTILINE)
    notebooks = [
        p for p in BOOK.rglob("*.ipynb") if not p.relative_to(BOOK).parts[0].startswith("_")
    ]
    idle = [p.name for p in notebooks if "normlab" not in imported_packages(p)]
    assert len(notebooks) > 10
    assert idle == []


def imported_packages(path: Path) -> set[str]:
    found: set[str] = set()
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                if isinstance(node, ast.ImportFrom):
                    found.add((node.module or "").partition(".")[0])
                elif isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
    return found


# What follows tests the checks themselves.

Change = Callable[[tool.Claim], tool.Claim]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda c: replace(c, verdict="perhaps"), "001-3: verdict 'perhaps'"),
        (lambda c: replace(c, verdict="False"), "001-3: verdict 'False'"),
        (lambda c: replace(c, correction=" "), "001-3: an empty"),
        (lambda c: replace(c, sources=("x2020y",)), "001-3: no source 'x2020y'"),
        (lambda c: replace(c, see=("000-99",)), "001-3: refers to '000-99'"),
        (lambda c: replace(c, page=""), "001-3: has to be settled"),
        (lambda c: replace(c, anchor="nowhere"), "001-3: no anchor 'nowhere'"),
        (lambda c: replace(c, cell="nothing"), "001-3: no cell 'nothing'"),
        (lambda c: replace(c, here="nothing"), "001-3: no cell 'nothing' on the page"),
        (lambda c: replace(c, here="B-design-errata"), "001-3: no anchor 'claims-B-design-errata'"),
        (lambda c: replace(c, test="tests/pages/test_claims.py::test_none"), "001-3: no test"),
        (lambda c: replace(c, test="tests/none.py::test_a"), "001-3: no test"),
        (lambda c: replace(c, id="001-4"), "001-3: missing"),
        (lambda c: replace(c, id="001-4"), "001-4: stands more than once"),
    ],
)
def test_a_bad_claim_is_rejected(change: Change, complaint: str) -> None:
    claims = [change(c) if c.id == "001-3" else c for c in tool.read_claims()]
    found = find_complaints(claims, coverage.read_pages(), coverage.read_bib_keys())
    assert any(text.startswith(complaint) for text in found)


@pytest.mark.parametrize("part", ["statement", "correction", "verdict", "anchor", "sources"])
def test_a_changed_statement_makes_the_page_stale(part: str) -> None:
    changes = {"verdict": "true", "sources": ("ba2016layer",)}
    claims = [
        replace(c, **{part: changes.get(part, "other")}) if c.id == "001-4" else c
        for c in tool.read_claims()
    ]
    assert "list-layer_norm_further" in find_stale_cells(read_cells(), claims)


def test_a_changed_answer_to_what_many_believe_makes_the_page_stale() -> None:
    claims = [replace(c, correction="other") if c.id == "001-3" else c for c in tool.read_claims()]
    assert find_stale_cells(read_cells(), claims) == [tool.BELIEVED]


def test_a_section_left_over_is_stale() -> None:
    left = {"id": "list-nowhere", "source": ["text"]}
    assert find_stale_cells([*read_cells(), left], tool.read_claims()) == ["list-nowhere"]


def test_a_notebook_without_the_package_is_found(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": ["import numpy as np\n", "from torch import nn"]}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    assert imported_packages(tmp_path / "a.ipynb") == {"numpy", "torch"}


def test_an_unknown_part_of_an_entry_is_refused() -> None:
    entry = {"claim": "It is.", "verdict": "true", "correction": "So.", "sources": [], "teh": "x"}
    with pytest.raises(TypeError, match="teh"):
        tool.make_claim("contradiction-1", entry, {})
