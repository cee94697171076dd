"""The extensions of the book's build, as far as the built pages do not show them."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from normlab.book.plotting.png import DENSITY

EXTENSIONS = Path(__file__).resolve().parents[2] / "book" / "_ext"


@pytest.fixture
def speed(monkeypatch):
    pytest.importorskip("pybtex.plugin", reason="jupyter-book is not installed")
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    return importlib.import_module("speed")


@pytest.mark.parametrize("name", ["normlab.norms", "normlab.checks", "normlab.layers.batch"])
def test_a_module_is_read_as_its_loader_reads_it(speed, name):
    module = importlib.import_module(name)
    file, source = speed.read_module_source(name)
    assert Path(file) == Path(module.__file__)
    # pytest imports what comes with a plugin of its own by a loader that has no source
    assert source == SourceFileLoader(name, module.__file__).get_source(name)


def test_reading_a_module_does_not_import_it(speed, monkeypatch):
    name = "normlab.book.experiments.paper_experiments.strokes"
    monkeypatch.delitem(sys.modules, name, raising=False)
    speed.read_module_source(name)
    assert name not in sys.modules


def test_figures_are_shown_at_the_size_that_they_are_drawn_for(monkeypatch):
    pytest.importorskip("docutils", reason="jupyter-book is not installed")
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    assert importlib.import_module("crisp").DENSITY == DENSITY


@pytest.fixture
def folding(monkeypatch):
    pytest.importorskip("myst_nb", reason="jupyter-book is not installed")
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    return importlib.import_module("folding")


def hidden_cell(folding, source: str, *outputs):
    from docutils import nodes

    fold = folding.HideCodeCellNode(prompt_show="Show", prompt_hide="Hide", classes=["above-input"])
    fold += nodes.literal_block(source, source)
    return nodes.container("", fold, *outputs)


def test_the_code_of_a_figure_is_one_fold_below_it(folding):
    from docutils import nodes
    from docutils.utils import new_document

    def figure():
        return nodes.container("", nodes.figure("", nodes.image(uri="a.png")))

    document = new_document("page")
    document += [
        nodes.paragraph("", "text"),
        hidden_cell(folding, "table = read()"),
        hidden_cell(folding, "rates = table.lr"),
        hidden_cell(folding, "plot(rates)", figure()),
        hidden_cell(folding, "print(1)", nodes.literal_block("1", "1")),
        hidden_cell(folding, "plot(2)", figure()),
    ]
    whole = hidden_cell(folding, "all")
    (inside,) = whole.children
    inside.append(figure())
    inside.parent = None  # as myst-nb leaves it where the outputs fold, too
    document += [whole, hidden_cell(folding, "plot(3)", figure())]
    folding.FoldFigureCode(document).run()
    _, first, printed, second, both, _ = document.children
    assert [c.astext() for c in first[1].children] == [
        "table = read()",
        "rates = table.lr",
        "plot(rates)",
    ]
    assert first[1]["prompt_show"] == first[1]["prompt_hide"] == "Code of the figure"
    assert (printed[0]["prompt_show"], len(second[1].children)) == ("Show", 1)
    assert both[0]["prompt_show"] == "Show"


def test_printed_tables_keep_their_columns(monkeypatch):
    pytest.importorskip("sphinx", reason="jupyter-book is not installed")
    from docutils import nodes
    from docutils.utils import new_document

    monkeypatch.syspath_prepend(str(EXTENSIONS))
    document = new_document("page")
    for text in ("norm    rate\nlayer   0.1", "a sentence,  with\ntwo lines", "one line"):
        document += nodes.literal_block(text, text, classes=["output"])
    importlib.import_module("accessible").keep_columns(None, document, "page")
    assert ["aligned" in block["classes"] for block in document.children] == [True, False, False]


@pytest.fixture
def searching(monkeypatch):
    pytest.importorskip("sphinx", reason="jupyter-book is not installed")
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    return importlib.import_module("searching")


def test_one_word_for_what_is_spelled_in_several_ways(searching):
    for text in ("LayerNorm", "layer norm", "Layer normalization", "LN", "layer-norms"):
        assert searching.tokenize(text) == ["layernorm"], text
    assert searching.tokenize("pre-LN") == searching.tokenize("pre-norm") == ["prenorm"]
    assert searching.tokenize("a normal input") == ["normal", "input"]
    assert searching.tokenize("归一化") == ["归一", "一化"]


def test_a_label_of_an_author_is_the_anchor(searching):
    assert searching.choose_anchor(["why-it-works", "bn-why"], {"bn-why"}) == "bn-why"
    assert searching.choose_anchor(["warmup", "id1"], set()) == "warmup"
    assert searching.choose_anchor(["id3"], set()) == "id3"


def test_chapters_weigh_most(searching):
    weights = [
        searching.weigh(f"book/{name}") for name in ("warmup", "warmup_further", "api/layers")
    ]
    assert weights == sorted(weights, reverse=True) and len(set(weights)) == 3


def test_modules_of_others_are_found_in_their_own_way(speed):
    file, source = speed.read_module_source("json")
    assert file == importlib.import_module("json").__file__
    assert "def dumps" in source
