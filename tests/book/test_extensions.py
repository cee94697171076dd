"""The extensions of the book's build, as far as the built pages do not show them."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from normlab.plotting.png import DENSITY

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
    name = "normlab.experiments.paper_experiments.strokes"
    monkeypatch.delitem(sys.modules, name, raising=False)
    speed.read_module_source(name)
    assert name not in sys.modules


def test_figures_are_shown_at_the_size_that_they_are_drawn_for(monkeypatch):
    pytest.importorskip("docutils", reason="jupyter-book is not installed")
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    assert importlib.import_module("crisp").DENSITY == DENSITY


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
