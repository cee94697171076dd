"""The notebooks keep their rules, and each rule rejects a notebook that breaks it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from loading import load

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"


hygiene = load(BOOK / "_tools" / "hygiene.py")
NOTEBOOKS = hygiene.find_notebooks()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.relative_to(BOOK).as_posix())
def test_notebook_keeps_the_rules(path: Path) -> None:
    notebook = hygiene.load_notebook(path)
    assert [c for rule in hygiene.RULES.values() for c in rule(notebook)] == []


# What follows tests the rules themselves.


def code(source: str, *outputs: dict[str, Any], count: int = 1, **metadata: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": count,
        "id": f"code-{count}",
        "metadata": metadata,
        "outputs": list(outputs),
        "source": source,
    }


def prose(source: str, name: str = "prose") -> dict[str, Any]:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def shown(**data: str) -> dict[str, Any]:
    mimes = {"png": "image/png", "text": "text/plain", "html": "text/html", "svg": "image/svg+xml"}
    bundle = {mimes[kind]: value for kind, value in data.items()}
    return {"output_type": "display_data", "metadata": {}, "data": bundle}


FIGURE = {
    "figure": {"caption": "The loss of four networks.", "name": "fig-loss"},
    "image": {"alt": "Four falling lines; the one of batch norm falls first."},
}


def make_notebook(*cells: dict[str, Any], name: str = "chapter", size: int = 1000) -> Any:
    raw = {
        "cells": list(cells),
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return hygiene.Notebook(name, raw, size)


def make_good() -> Any:
    return make_notebook(
        prose(
            "# A chapter\n\nSee Section 3.2, Eq. 1.4 and $x = 0.5$ in torch 2.13; `eps=0.1`.\n\n"
            "The paper reports 23.7 {cite:p}`wu2018group`.\n\n"
            "```{prf:proof}\nBy linearity.\n```\n\n"
            "```python\nx = 0.25\n```\n\nIt is {glue:text}`gap`, see [this](https://a.b/1.5)."
        ),
        code("import torch\n\nfrom normlab import layers\n\nx = torch.ones(2, 2)", count=1),
        code("print(x.sum())", stream("4.0\n"), count=2),
        code("fig, ax = make_axes()", shown(png="aGk=", text="<Figure>"), count=3, mystnb=FIGURE),
        code('def answer(x):\n    """Say what."""\n\n\nprint(check(answer))', stream("?"), count=4),
        code("(y * dy).sum().backward()\nx.grad", shown(text="tensor([1.])"), count=5),
    )


def test_a_good_notebook_keeps_all_rules() -> None:
    notebook = make_good()
    assert {name: list(rule(notebook)) for name, rule in hygiene.RULES.items()} == {
        name: [] for name in hygiene.RULES
    }


OK = stream("1\n")
LOOP = "for x, y in data:\n    loss(x, y).backward()\n    optimizer.step()"
ALT = FIGURE["image"]
CAPTION = FIGURE["figure"]
PNG = shown(png="aGk=")

ROWS = "batch norm  0.5  12\nlayer norm  0.2   7\nRMS norm    0.1  10\n"

BAD: list[tuple[str, str, Any]] = [
    ("fences_are_closed", "a theorem", [prose("```{prf:theorem} Length\n:label: thm\n")]),
    ("fences_are_closed", "a note around code", [prose(":::{note}\n```python\nx\n```\nText.")]),
    ("fences_are_closed", "the shorter fence closed", [prose("````{note}\nText.\n```")]),
    ("rows_of_numbers_are_tables", "printed", [code("1", stream("loss, steps\n" + ROWS))]),
    ("rows_of_numbers_are_tables", "a value", [code("1", shown(text=ROWS))]),
    (
        "rows_of_numbers_are_tables",
        "between words",
        [code("1", stream("".join(f"n = {n:2}: loss 0.{n:02}, or 0.5\n" for n in (2, 4, 16))))],
    ),
    (
        "rows_of_numbers_are_tables",
        "yes and no",
        [code("1", stream("".join(f"{n:5} yes  no\n" for n in ("a", "b", "c"))))],
    ),
    ("cells_are_executed_in_order", "never run", [code("x = 1", count=None)]),  # type: ignore[arg-type]
    ("cells_are_executed_in_order", "a gap", [code("x = 1"), code("y = 1", count=3)]),
    ("cells_are_executed_in_order", "out of order", [code("x = 1", count=2), code("y = 1")]),
    ("outputs_are_stored", "a print", [code("x", OK), code("print(1)", count=2)]),
    ("outputs_are_stored", "a value", [code("1", OK), code("x", count=2)]),
    ("outputs_are_stored", "a listing", [code("1", OK), code("show(x)", count=2)]),
    ("outputs_are_stored", "nothing at all", [code("x = 1")]),
    (
        "nothing_went_wrong",
        "an error",
        [code("1", {"output_type": "error", "ename": "E", "evalue": "", "traceback": []})],
    ),
    ("nothing_went_wrong", "a warning", [code("1", stream("careful", "stderr"))]),
    ("outputs_fit_any_machine", "an address", [code("1", stream("<G at 0x7f2a10>"))]),
    ("outputs_fit_any_machine", "a path", [code("1", stream("in /home/me/x.py"))]),
    ("outputs_fit_any_machine", "a temporary file", [code("1", shown(text="'/tmp/a'"))]),
    ("outputs_fit_any_machine", "a kernel", [code("1", stream("ipykernel_4711"))]),
    ("outputs_fit_any_machine", "all digits", [code("1", stream("0.3626696765422821"))]),
    (
        "outputs_fit_any_machine",
        "a glued float",
        [
            code(
                "1",
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {"application/papermill.record/text/plain": "0.36266967654"},
                },
            )
        ],
    ),
    ("code_stays_local", "a path", [code("open('/home/me/data.json')", OK)]),
    ("code_stays_local", "an address", [code("get('https://example.org')", OK)]),
    ("figures_are_described", "nothing", [code("1", PNG)]),
    ("figures_are_described", "no alt", [code("1", PNG, mystnb={"figure": CAPTION})]),
    (
        "figures_are_described",
        "a short alt",
        [code("1", PNG, mystnb={"figure": CAPTION, "image": {"alt": "a plot"}})],
    ),
    (
        "figures_are_described",
        "no caption",
        [code("1", PNG, mystnb={"figure": {"name": "a"}, "image": ALT})],
    ),
    (
        "figures_are_described",
        "no name",
        [code("1", PNG, mystnb={"figure": {"caption": "A."}, "image": ALT})],
    ),
    (
        "figures_are_described",
        "a name twice",
        [code("1", PNG, mystnb=FIGURE), code("1", PNG, mystnb=FIGURE, count=2)],
    ),
    ("figures_are_described", "two in a cell", [code("1", PNG, PNG, mystnb=FIGURE)]),
    ("files_are_small", "a large file", make_notebook(size=400_000)),
    ("definitions_live_in_the_package", "a class", [code("class Norm:\n    pass")]),
    ("definitions_live_in_the_package", "a function", [code("def norm(x):\n    return x")]),
    ("definitions_live_in_the_package", "one inside", [code("if x:\n    def f():\n        g()")]),
    (
        "definitions_live_in_the_package",
        "a class in solutions",
        make_notebook(code("class Norm:\n    pass"), name="solutions/chapter"),
    ),
    ("training_lives_in_the_package", "a loop", [code(LOOP)]),
    ("training_lives_in_the_package", "a while", [code("while True:\n    optimizer.step()")]),
    ("imports_are_few", "sklearn", [code("from sklearn import datasets")]),
    ("imports_are_few", "a tool", [code("import os, torch")]),
    ("imports_are_few", "a neighbor", [code("from . import x")]),
    ("losses_are_no_plain_sums", "a name", [code("y.sum().backward()")]),
    ("losses_are_no_plain_sums", "a call", [code("norm(x).sum().backward()")]),
    ("losses_are_no_plain_sums", "the function", [code("torch.sum(y).backward()")]),
    ("numbers_come_from_cells", "a result", [prose("The loss falls to 0.25 at once.")]),
    ("numbers_come_from_cells", "in a directive", [prose("```{note}\nIt is 0.25.\n```")]),
    ("numbers_come_from_cells", "beside a place", [prose("In Eq. 3 it is 0.25.")]),
    ("numbers_come_from_cells", "in a table", [prose("| a |\n|---|\n| 1.5 % |")]),
    ("numbers_come_from_cells", "far from its source", [prose("{cite:p}`a`.\n\nIt is 0.5.")]),
    ("proofs_open_with_prose", "a formula", [prose("```{prf:proof}\n$$ x $$\n```")]),
    ("proofs_open_with_prose", "a list", [prose("```{prf:proof}\n:label: p\n\n- x\n```")]),
    ("no_prose_is_a_comment", "an error rate", [prose("It is 23.6\n% with 32 images.")]),
]


@pytest.mark.parametrize(
    ("rule", "bad"), [pytest.param(rule, bad, id=f"{rule}-{name}") for rule, name, bad in BAD]
)
def test_the_rule_rejects(rule: str, bad: Any) -> None:
    notebook = make_notebook(*bad) if isinstance(bad, list) else bad
    assert list(hygiene.RULES[rule](notebook)) != []


@pytest.mark.parametrize(
    "path", sorted(BOOK.rglob("*.md")), ids=lambda path: path.relative_to(BOOK).as_posix()
)
def test_no_line_of_a_page_is_lost(path: Path) -> None:
    assert hygiene.lost_lines(path.read_text(encoding="utf-8")) == []


def test_a_lost_line_is_found() -> None:
    assert hygiene.lost_lines("It is 23.6\n% with 32 images.\n\n% generated\n") == [
        "% with 32 images."
    ]
    assert hygiene.lost_lines("```\na\n% b\n```\n") == []


def test_every_rule_has_been_shown_to_reject() -> None:
    assert {rule for rule, _, _ in BAD} == set(hygiene.RULES)


@pytest.mark.parametrize(
    "good",
    [
        make_notebook(code("def norm(x):\n    return x"), name="solutions/chapter"),
        make_notebook(code("y.sum().backward()", tags=["counterexample"])),
        make_notebook(code("for i in range(3):\n    print(i)", OK)),
        make_notebook(code("print(rows)", stream(ROWS), tags=["printed-rows"])),
        make_notebook(code("print(rows)", stream(ROWS), count=1), name="solutions/chapter"),
        make_notebook(code("table", shown(text=ROWS, html="<table>"))),
        make_notebook(code("print(two)", stream("".join(ROWS.splitlines(keepends=True)[:2])))),
        make_notebook(code("print(f)", stream("a of 2 (3, 4)\nb of 2 (3, 4)\nc of 2 (3, 4)\n"))),
        make_notebook(prose("Tables 1.2 and 1.3, Sections 4.1, 4.2 and 4.3; ![alt](x.png)")),
        make_notebook(prose("`0.1`, $$\n0.1\n$$\n\n    code\n\n{glue:text}`a:.2f`")),
    ],
)
def test_no_rule_is_too_strict(good: Any) -> None:
    rules = set(hygiene.RULES) - {"outputs_are_stored"}
    assert [c for name in rules for c in hygiene.RULES[name](good)] == []


def test_the_command_reports_what_breaks_a_rule(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hygiene, "BOOK", tmp_path)
    (tmp_path / "typed_numbers.yml").write_text("[]\n", encoding="utf-8")
    path = tmp_path / "chapter.ipynb"
    path.write_text(json.dumps(make_good().raw), encoding="utf-8")
    assert hygiene.main([str(path)]) == 0
    assert "1 notebooks keep all" in capsys.readouterr().out
    path.write_text(json.dumps(make_notebook(prose("It is 0.25.")).raw), encoding="utf-8")
    assert hygiene.main([str(path)]) == 1
    assert "chapter.ipynb: cell 1 types 0.25 by hand" in capsys.readouterr().out


# Numbers that prose types by hand.


def stale_entries(entries: list[dict[str, str]], sources: dict[str, str]) -> list[str]:
    """Entries of the list that lack a reason, or whose number no longer stands in its notebook."""
    return [
        f"{entry.get('notebook')}: {entry.get('number')}"
        for entry in entries
        if not entry.get("reason")
        or not isinstance(entry.get("number"), str)
        or entry["number"] not in hygiene.typed_decimals(sources.get(entry["notebook"], ""))
    ]


def test_the_list_of_typed_numbers_is_current() -> None:
    sources = {}
    for path in NOTEBOOKS:
        notebook = hygiene.load_notebook(path)
        sources[notebook.name] = "\n\n".join(cell.source for cell in notebook.prose)
    assert stale_entries(hygiene.load_typed_numbers(), sources) == []


@pytest.mark.parametrize(
    "entry",
    [
        {"notebook": "a", "number": "0.5"},
        {"notebook": "a", "number": 0.5, "reason": "a constant"},
        {"notebook": "a", "number": "0.7", "reason": "a constant"},
        {"notebook": "b", "number": "0.5", "reason": "a constant"},
    ],
)
def test_an_entry_without_use_or_reason_is_found(entry: dict[str, Any]) -> None:
    assert stale_entries([entry], {"a": "It is 0.5."}) != []
    good = {"notebook": "a", "number": "0.5", "reason": "a constant"}
    assert stale_entries([good], {"a": "It is 0.5."}) == []


# The order of the book.


def pages_of(toc: Any) -> set[str]:
    """Every page that a table of contents names."""
    if isinstance(toc, list):
        return {page for entry in toc for page in pages_of(entry)}
    if not isinstance(toc, dict):
        return set()
    own = {
        str(toc[key]).removesuffix(".md").removesuffix(".ipynb")
        for key in ("root", "file")
        if key in toc
    }
    return own | {page for value in toc.values() for page in pages_of(value)}


def links_of(index: str) -> set[str]:
    """Every page below `book` that these texts link to."""
    links = re.findall(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`", index)
    links += re.findall(r"\]\(([^):]+?)(?:\.md|\.ipynb)\)", index)
    return {f"book/{link}" for link in links}


def misplaced(toc: Any, index: str, notebooks: set[str]) -> list[str]:
    pages = pages_of(toc)
    complaints = [f"{page} is not in _toc.yml" for page in notebooks - pages]
    unlisted = pages - links_of(index) - {toc["root"]}
    return sorted(complaints + [f"{page} is listed on no page of contents" for page in unlisted])


def test_every_page_has_its_place() -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    # The first page has the chapters and the reference, the other one the rest.
    contents = [(BOOK / name).read_text(encoding="utf-8") for name in ("index.md", "pages.md")]
    index = "\n".join(contents)
    notebooks = {p.relative_to(ROOT).with_suffix("").as_posix() for p in NOTEBOOKS}
    assert misplaced(toc, index, notebooks) == []


def test_a_page_without_a_place_is_found() -> None:
    toc = {"root": "book/index", "parts": [{"chapters": [{"file": "book/a"}, {"file": "book/b"}]}]}
    index = "{doc}`The first <a>` and [the second](b.ipynb)"
    assert misplaced(toc, index, {"book/a", "book/b"}) == []
    assert misplaced(toc, "{doc}`a`", {"book/a"}) == ["book/b is listed on no page of contents"]
    assert misplaced(toc, index, {"book/solutions/a"}) == ["book/solutions/a is not in _toc.yml"]
