"""Cells of another page are shown as they are stored, and Chinese pages say that they are."""

from __future__ import annotations

import base64
import importlib
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

EXTENSIONS = Path(__file__).resolve().parents[2] / "book" / "_ext"
FIGURE = b"a stored figure"


@pytest.fixture
def accessible(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("sphinx", reason="jupyter-book is not installed")
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    return importlib.import_module("accessible")


def make_cell(id: str, source: str, *outputs: dict[str, object]) -> dict[str, object]:
    return {
        "cell_type": "code",
        "execution_count": 1,
        "id": id,
        "metadata": {},
        "outputs": [{"metadata": {}, **output} for output in outputs],
        "source": [source],
    }


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Builds a page of the given text beside a notebook; gives its HTML and the warnings."""
    pytest.importorskip("myst_nb", reason="jupyter-book is not installed")
    from sphinx.testing.util import SphinxTestApp

    monkeypatch.syspath_prepend(str(EXTENSIONS))
    png = base64.b64encode(FIGURE).decode()
    listing = ["```python\n", "def f(): ...\n", "```"]
    stream = {"output_type": "stream", "name": "stdout", "text": ["4", "2\n"]}
    figure = {"image/png": png, "text/plain": "Figure"}
    table = {"text/html": "<table><td>0.5</table>", "text/plain": "plain"}
    source = {"text/markdown": listing, "text/plain": "Source of f"}
    cells = [
        make_cell("printed", "print(6 * 7)", stream),
        make_cell("drawn", "draw()", {"output_type": "display_data", "data": figure}),
        make_cell("listed", "show(f)", {"output_type": "display_data", "data": source}),
        make_cell("tabled", "table", {"output_type": "execute_result", "data": table}),
        make_cell("silent", "x = 1"),
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    for name, text in {
        "conf.py": "extensions = ['myst_nb', 'cells']\nnb_execution_mode = 'off'\n",
        "index.md": "# Index\n\n```{toctree}\nnotebook\nzh/page\n```\n",
        "notebook.ipynb": json.dumps(notebook),
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "zh").mkdir()

    def run(text: str) -> tuple[str, str]:
        (tmp_path / "zh/page.md").write_text(f"# 页\n\n{text}\n", encoding="utf-8")
        app = SphinxTestApp("html", srcdir=tmp_path)
        app.build()
        app.cleanup()
        return (app.outdir / "zh/page.html").read_text(encoding="utf-8"), app.warning.getvalue()

    return run


def test_stored_outputs_are_shown(build) -> None:
    html, warnings = build(
        "```{cell} ../notebook.ipynb printed\n```\n\n"
        "```{cell} ../notebook.ipynb drawn\n:alt: 一幅图\n:name: fig-zh\n\n图注，见 $x$。\n```\n\n"
        "```{cell} ../notebook.ipynb listed\n:show: both\n```\n\n"
        "```{cell} ../notebook.ipynb tabled\n```\n\n"
        "```{cell} ../notebook.ipynb silent\n:show: source\n```"
    )
    assert "<td>0.5</table>" in html
    assert "plain" not in html
    assert "page.md" not in warnings
    assert "<pre><span></span>42\n</pre>" in html
    assert "6 * 7" not in html
    assert 'alt="一幅图"' in html
    assert 'id="fig-zh"' in html
    assert "图注，见" in html
    assert html.count("<img") == 1
    assert "Figure" not in html
    assert "Source of f" not in html
    assert html.count('class="highlight-python notranslate"') == 3


def test_what_cannot_be_shown_is_a_warning(build) -> None:
    alone = "needs :alt: and a caption"
    wrong = {
        "unknown\n```": "no code cell with the id unknown",
        "silent\n```": "stores no outputs to show",
        "drawn\n:alt: 一幅图\n```": alone,
        "drawn\n\n图注。\n```": alone,
        "printed\n:show: all\n```": '"all"',
    }
    _, warnings = build("\n\n".join(f"```{{cell}} ../notebook.ipynb {text}" for text in wrong))
    assert warnings.count("page.md") == len(wrong)
    assert warnings.count(alone) == 2
    assert all(complaint in warnings for complaint in wrong.values())


def test_chinese_pages_are_marked_as_chinese(accessible: ModuleType) -> None:
    styles: list[str] = []
    app = SimpleNamespace(add_css_file=styles.append)
    pages = {}
    for page in ("book/zh/claims", "book/claims"):
        body = '<span class="caption-number">Fig. 2 </span><span class="pasted-text">1.4 %</span>'
        pages[page] = {"language": "en", "body": body}
        accessible.name_language(app, page, "page.html", pages[page], None)
    assert pages["book/zh/claims"]["language"] == "zh-Hans"
    assert "图 2 " in pages["book/zh/claims"]["body"]
    assert ">1.4%<" in pages["book/zh/claims"]["body"]
    assert pages["book/claims"]["language"] == "en"
    assert "Fig. 2 " in pages["book/claims"]["body"]
    assert ">1.4 %<" in pages["book/claims"]["body"]
    assert [(EXTENSIONS.parent / "_static" / style).is_file() for style in styles] == [True]
