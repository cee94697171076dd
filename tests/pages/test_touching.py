"""A page gets the scripts of its figures to touch, and other pages get none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from loading import load

pytest.importorskip("sphinx", reason="jupyter-book is not installed")
ROOT = Path(__file__).resolve().parents[2]
touching = load(ROOT / "book" / "_ext" / "touching.py")
DATA = '<script type="application/json" class="touch" data-figure="some">{}</script>'


class App(SimpleNamespace):
    def add_css_file(self, file: str) -> None:
        self.files.append(file)

    def add_js_file(self, file: str, loading_method: str) -> None:
        assert loading_method == "defer"
        self.files.append(file)


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    monkeypatch.setattr(touching, "SCRIPTS", tmp_path)
    (tmp_path / "some.js").touch()


@pytest.mark.usefixtures("scripts")
def test_the_scripts_come_in_order():
    app = App(files=[])
    touching.add_scripts(app, "a", "", {"body": f'<figure id="fig-some"></figure>{DATA}'}, None)
    assert app.files == ["touch/touch.css", "touch/d3.js", "touch/shared.js", "touch/some.js"]


def test_an_explorer_needs_no_figure_and_no_library():
    app = App(files=[])
    touching.add_scripts(app, "a", "", {"body": DATA.replace("some", "explorer")}, None)
    assert app.files == ["explorer.js"]


def test_other_pages_get_none():
    app = App(files=[])
    touching.add_scripts(app, "a", "", {"body": '<figure id="fig-some"></figure>'}, None)
    touching.add_scripts(app, "a", "", {}, None)
    assert app.files == []


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize(
    ("body", "missing"),
    [
        (DATA, "a figure named fig-some"),
        (DATA.replace("some", "other"), "a figure named fig-other"),
    ],
)
def test_a_figure_that_is_missing_stops_the_build(body, missing):
    with pytest.raises(ValueError, match=missing):
        touching.find_figures("a", body)


def test_a_script_that_is_missing_stops_the_build():
    with pytest.raises(ValueError, match="no_such.js"):
        touching.find_figures("a", f'<i id="fig-no_such"></i>{DATA.replace("some", "no_such")}')


def test_the_library_keeps_its_license():
    folder = ROOT / "book" / "_static" / "touch"
    assert "Mike Bostock" in (folder / "LICENSE-d3").read_text(encoding="utf-8")
    assert "LICENSE-d3" in (folder / "d3.js").read_text(encoding="utf-8")[:200]
