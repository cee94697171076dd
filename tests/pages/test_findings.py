"""Findings are written once, shown by a cell, and quoted as they are written."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
from loading import load

from normlab.book.sources import read_findings

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
CHAPTER = """
(small)=
## Batches of few

:::{{finding}} few-images
:kind: {kind}
:shown: {shown}

At a batch of 4, see {{ref}}`small`, $x$ is ahead.

In {{glue:text}}`runs:s` runs, see {{ref}}`small`, of a network with $y$.
:::
"""
PAGE = "# A guide\n\nTake it: {finding}`few-images`\n\n```{findings}\n```\n"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Builds a chapter and a page that quotes it; gives the HTML of both and the warnings."""
    pytest.importorskip("myst_nb", reason="jupyter-book is not installed")
    from sphinx.testing.util import SphinxTestApp

    monkeypatch.syspath_prepend(str(BOOK / "_ext"))
    record = {
        "output_type": "display_data",
        "data": {"application/papermill.record/text/plain": "'5 of 5'"},
        "metadata": {"scrapbook": {"name": "runs", "mime_prefix": "application/papermill.record/"}},
    }
    quoted = {"text/markdown": "[quoted by a cell](chapter.ipynb#small)"}
    output = {"output_type": "display_data", "data": quoted, "metadata": {}}
    code = {
        "cell_type": "code",
        "execution_count": 1,
        "id": "a",
        "metadata": {},
        "outputs": [record, output],
        "source": ["glue('runs', '5 of 5')"],
    }

    def run(page: str = PAGE, **changes: str) -> tuple[str, str, str]:
        text = "# Chapter\n" + CHAPTER.format(**{"kind": "measured", "shown": "small"} | changes)
        cells = [code, {"cell_type": "markdown", "id": "b", "metadata": {}, "source": [text]}]
        metadata = {"language_info": {"name": "python", "pygments_lexer": "python"}}
        notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
        options = (
            "nb_execution_mode = 'off'\nmyst_enable_extensions = ['colon_fence', 'dollarmath']"
        )
        for name, content in {
            "conf.py": f"extensions = ['myst_nb', 'findings', 'sphinx.ext.mathjax']\n{options}\n",
            "index.md": "# Index\n\n```{toctree}\nchapter\nguide\n```\n",
            "chapter.ipynb": json.dumps(notebook),
            "guide.md": page,
        }.items():
            (tmp_path / name).write_text(content, encoding="utf-8")
        app = SphinxTestApp("html", srcdir=tmp_path)
        app.build()
        app.cleanup()
        html = [(app.outdir / f"{name}.html").read_text() for name in ("chapter", "guide")]
        return *html, app.warning.getvalue()

    return run


def plain(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", html).split())


SENTENCE = r"At a batch of 4, see Batches of few, \(x\) is ahead. measured"
CONDITIONS = r"In 5 of 5 runs, see Batches of few, of a network with \(y\)."


def test_a_finding_is_quoted_with_its_numbers_and_a_link(build) -> None:
    chapter, guide, warnings = build()
    assert "WARNING" not in warnings
    assert f"{SENTENCE} Conditions {CONDITIONS}" in plain(chapter)
    assert re.search(r"<details[^>]*finding-conditions[^>]*>\s*<summary>Conditions", chapter)
    assert plain(guide).count(SENTENCE) == 2  # quoted, and in the list of all
    assert plain(guide).count(CONDITIONS) == 1  # in the list of all
    assert f"Take it: {SENTENCE}" in plain(guide)
    assert len(re.findall(r'href="chapter.html#small"[^>]*><span class="[^"]*measured', guide)) == 2
    assert 'id="few-images"' in chapter
    assert re.search(r"<script[^>]*mathjax", guide)  # its only formula is quoted
    assert re.search(r'href="#small"[^>]*>(<span[^>]*>)?quoted by a cell', chapter)
    assert 'href="chapter.html"' in guide.split("Take it")[1]  # the title over the list


MARK = ":::{{finding}} {}\n:kind: proved\n{}\nx\n{}:::\n\n"
WRONG_PAGE = (
    "# G\n\n{finding}`many-images`\n\n"
    + MARK.format("few-images", ":shown: small\n", "")
    + MARK.format("other", "", "")
    + MARK.format("another", ":shown: small\n", "\ny\n\nz\n")
)


@pytest.mark.parametrize(
    ("page", "changes", "says"),
    [
        (
            WRONG_PAGE,
            {},
            (
                "no finding is called many-images",
                "finding few-images is on",
                "a finding needs :shown:",
                "a finding is a sentence and, behind it, a paragraph of conditions",
            ),
        ),
        (PAGE, {"shown": "large"}, ("no section has the label large",)),
        (PAGE, {"kind": "felt"}, ("felt",)),
    ],
)
def test_what_is_wrong_is_said(build, page, changes, says) -> None:
    warnings = build(page, **changes)[2]
    assert [words for words in says if words not in warnings] == []


def test_a_quoted_citation_has_no_second_id() -> None:
    docutils = pytest.importorskip("docutils.nodes")
    addnodes = pytest.importorskip("sphinx.addnodes")
    extension = load(BOOK / "_ext" / "findings.py")
    cited = addnodes.pending_xref("", ids=["id5"], refdoc="chapter")
    sentence = docutils.paragraph("", "", cited)
    found = extension.Found("chapter", "published", "small", sentence, None)
    (copy,) = found.copy_for("guide")
    assert (copy["ids"], copy["refdoc"], cited["ids"]) == ([], "guide", ["id5"])


NOTEBOOKS = [BOOK / p.name for p in sorted(BOOK.glob("*.ipynb"))]
# What another page has not introduced.
DANGLING = re.compile(
    r"\b(?:that|this|these|those|the same) (?:network|task|model|decoder|sweep)\b"
)
FINDINGS = [(path, one) for path in NOTEBOOKS for one in read_findings(path)]


def words_of(sentence: str) -> list[str]:
    """What is read as a word: a formula, a number and a cited paper are one each."""
    sentence = re.sub(r"\$[^$]+\$|\{[\w:]+\}`[^`]+`", "x", sentence)
    return re.findall(r"[\w’'-]*\w[\w.,%’'-]*", sentence)


def faults(path: Path, names_elsewhere: set[str]) -> list[str]:
    """What is wrong with the findings of a notebook: one without a cell, a section, a citation."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    tags = {t for c in cells if c["cell_type"] == "code" for t in c["metadata"].get("tags", ())}
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    found = []
    for one in read_findings(path):
        if one.kind in ("proved", "measured") and one.name not in tags:
            found.append(f"{one.name}: no code cell has this tag")
        if one.kind == "published" and "{cite" not in one.sentence + one.conditions:
            found.append(f"{one.name}: published where? cite it")
        if f"({one.shown})=" not in text:
            found.append(f"{one.name}: no section of this page has the label {one.shown}")
        if DANGLING.search(one.sentence):
            found.append(f"{one.name}: quoted elsewhere, nobody knows which one it means")
        if one.conditions and len(words_of(one.sentence)) > 20:
            found.append(f"{one.name}: the sentence has more than twenty words")
        if one.name in names_elsewhere:
            found.append(f"{one.name}: another page has it, too")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_finding_is_shown(path) -> None:
    elsewhere = {one.name for other, one in FINDINGS if other != path}
    assert faults(path, elsewhere) == []


# Pages that quote.

DIGESTS = ("decision_guide.md", "cheat_sheet.md", "handout.md", "interview.ipynb", "claims.ipynb")
QUOTED = re.compile(r"\{finding\}`[^`]+`")
RESULT = re.compile(
    r"\{glue:text\}`[^`]*|\b\d+ of \d+\b|\bnats\b"
    r"|\b(?:each|every|all|\d+|two|three|five|ten) seeds?\b"
)
COUNTS = {"all-verdicts", "false", "it-depends", "true"}  # of the claims, by the claims


def own_results(page: Path, sentences: list[str]) -> list[str]:
    """What a page says of a run beyond the findings that it quotes."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    text = " ".join(QUOTED.sub("", text).split())
    for sentence in sentences:
        text = text.replace(sentence, "")
    found = RESULT.findall(text)
    return [one for one in found if one.removeprefix("{glue:text}`") not in COUNTS]


@functools.cache
def quotations() -> list[str]:
    """The sentences of all findings as the tool for claims writes them."""
    tool = load(BOOK / "_tools" / "claims.py")
    return [tool.quote_finding(one.name) for _, one in FINDINGS]


@pytest.mark.parametrize("name", DIGESTS)
def test_a_page_that_quotes_states_no_result_of_its_own(name) -> None:
    assert own_results(BOOK / name, quotations()) == []


def test_a_finding_stands_by_itself(tmp_path) -> None:
    text = CHAPTER.format(kind="conjectured", shown="small")
    text = text.replace("At a batch of 4", "In that network")
    text = text.replace("{glue:text}`runs:s`", "5 of 5")
    path = tmp_path / "chapter.ipynb"
    cells = [{"cell_type": "markdown", "metadata": {}, "source": [text]}]
    path.write_text(json.dumps({"cells": cells}))
    assert faults(path, set()) == ["few-images: quoted elsewhere, nobody knows which one it means"]


def test_a_sentence_is_read_at_once(tmp_path) -> None:
    long = "At a batch of 4, in each of the ten runs that were tried, and at every rate, by far,"
    text = CHAPTER.format(kind="conjectured", shown="small").replace("At a batch of 4,", long)
    path = tmp_path / "chapter.ipynb"
    text = text.replace("{glue:text}`runs:s`", "5 of 5")
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": [text]}]}))
    assert faults(path, set()) == ["few-images: the sentence has more than twenty words"]
    assert words_of("See {ref}`small`: $x + 1$ is 3.5 times y.") == [
        "See",
        "x",
        "x",
        "is",
        "3.5",
        "times",
        "y.",
    ]


@pytest.mark.parametrize(
    ("kind", "tags", "says"),
    [
        ("measured", [], "few-images: no code cell has this tag"),
        ("proved", ["other"], "few-images: no code cell has this tag"),
        ("published", [], "few-images: published where? cite it"),
        ("measured", ["few-images"], ""),
    ],
)
def test_a_finding_that_nothing_shows_is_named(tmp_path, kind, tags, says) -> None:
    text = CHAPTER.format(kind=kind, shown="small").replace("{glue:text}`runs:s`", "5 of 5")
    cells = [
        {"cell_type": "code", "metadata": {"tags": tags}, "source": [], "outputs": []},
        {"cell_type": "markdown", "metadata": {}, "source": [text]},
    ]
    path = tmp_path / "chapter.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert faults(path, set()) == ([says] if says else [])
    (double,) = faults(path, {"few-images"})[-1:]
    assert double == "few-images: another page has it, too"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Take it: {finding}`few-images` ({ref}`small`).", []),
        ("It was ahead in 5 of 5 runs.", ["5 of 5"]),
        ("It was ahead by {glue:text}`page.ipynb::lead:s`.", ["{glue:text}`page.ipynb::lead:s"]),
        ("It was ahead in every seed, by two nats.", ["every seed", "nats"]),
        ("Of {glue:text}`all-verdicts` statements some are false.", []),
    ],
)
def test_a_result_on_such_a_page_is_found(tmp_path, text, found) -> None:
    page = tmp_path / "guide.md"
    page.write_text(text)
    assert own_results(page, []) == found
