"""The extensions of the book's build, as far as the built pages do not show them."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace

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


def test_the_scorer_is_found_from_every_folder(monkeypatch, tmp_path):
    pytest.importorskip("sphinx", reason="jupyter-book is not installed")
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    monkeypatch.chdir(tmp_path)
    config = SimpleNamespace(html_search_scorer="")
    importlib.import_module("searching").choose_scorer(None, config)
    assert "Scorer.score" in Path(config.html_search_scorer).read_text(encoding="utf-8")


def test_modules_of_others_are_found_in_their_own_way(speed):
    file, source = speed.read_module_source("json")
    assert file == importlib.import_module("json").__file__
    assert "def dumps" in source
