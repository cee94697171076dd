"""The source that a chapter shows is the source that runs."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import normlab.book.sources
from normlab import layers, norms
from normlab.book.kernel_ladder import loops as ladder
from normlab.book.sources import show, show_change, source_of

TRICKY = '''
def wraps(function):
    return function


class Plain:
    """Only a docstring."""


class Outer:
    """A docstring of the class: µ, 均值.

    It has several lines.
    """

    value = "not a docstring"

    @property
    def read(self):
        """One line."""  # a comment behind it
        # a comment below it
        return self.value

    def silent(self):
        r"""Raw; with a \\mu."""

    async def later(self): """Behind a colon."""; return 1

    @wraps
    def nested(self):
        """Outer."""

        def inner():
            """Inner."""
            text = """not a docstring"""
            return text

        return inner()
'''

BARE = '''class Outer:
    value = "not a docstring"

    @property
    def read(self):
        # a comment behind it
        # a comment below it
        return self.value

    def silent(self):
        ...

    async def later(self): return 1

    @wraps
    def nested(self):
        def inner():
            text = """not a docstring"""
            return text

        return inner()'''


@pytest.fixture
def tricky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that passes for a part of normlab."""
    path = tmp_path / "tricky.py"
    path.write_text(TRICKY, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("normlab.tricky", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "normlab.tricky", module)
    spec.loader.exec_module(module)
    return module


def test_docstrings_go_and_all_else_stays(tricky: ModuleType) -> None:
    assert source_of(tricky.Outer) == BARE
    assert source_of(tricky.Plain) == "class Plain:\n    ..."


def test_docstrings_stay_on_request(tricky: ModuleType) -> None:
    assert source_of(tricky.Outer, docstring=True) == inspect.getsource(tricky.Outer).rstrip()


def test_a_method_is_dedented(tricky: ModuleType) -> None:
    assert source_of(tricky.Outer.silent).startswith("def silent(self):")


@pytest.mark.parametrize("name", layers.__all__)
def test_source_without_docstrings_is_the_same_program(name: str) -> None:
    def program(source: str) -> str:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                rest = node.body[1:] if ast.get_docstring(node) is not None else node.body
                ellipsis: list[ast.stmt] = [ast.Expr(ast.Constant(...))]
                node.body = rest or ellipsis
        return ast.dump(tree)

    definition = getattr(layers, name)
    assert program(source_of(definition)) == program(source_of(definition, docstring=True))


def test_an_edit_changes_what_is_shown(tricky: ModuleType) -> None:
    before = source_of(tricky.Outer.read.fget)
    path = Path(str(tricky.__file__))
    path.write_text(TRICKY.replace("return self.value", "return  2 * self.value"), encoding="utf-8")
    assert "2 * self.value" not in before
    assert "2 * self.value" in source_of(tricky.Outer.read.fget)


@pytest.mark.parametrize("wrong", [norms.NORMS, len, "text", normlab.book.sources])
def test_what_has_no_source_of_its_own_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="definition: got .*; expected a function, method or class"):
        source_of(wrong)


def test_source_of_other_projects_is_refused() -> None:
    with pytest.raises(ValueError, match="is defined in pathlib"):
        source_of(Path)


@pytest.fixture
def shell() -> InteractiveShell:
    return InteractiveShell.instance()


@pytest.mark.usefixtures("shell")
def test_show_displays_a_highlighted_listing_per_definition() -> None:
    with capture_output() as captured:
        show(norms.label_cells, layers.LayerNorm)
    (output,) = captured.outputs
    assert output.data["text/plain"] == (
        "Source of normlab.norms.label_cells, normlab.layers.layer.LayerNorm"
    )
    markdown = output.data["text/markdown"]
    assert markdown.startswith("```python\n# normlab.norms\ndef label_cells(")
    assert "\n\n\n# normlab.layers.layer\nclass LayerNorm" in markdown
    assert markdown.endswith("\n```")
    assert str(Path.cwd()) not in markdown


@pytest.mark.usefixtures("shell")
def test_a_change_marks_what_is_new() -> None:
    before, after = ladder.corrected_backward, ladder.streamed_backward
    with capture_output() as captured:
        show_change(before, after)
    (shown,) = captured.outputs
    lines = shown.data["text/markdown"].splitlines()
    assert lines[0] == "```diff" and lines[-1] == "```"
    new = [line[2:] for line in lines if line.startswith("+ ")]
    old = [line[2:] for line in lines if line.startswith("- ")]
    assert any("put(kind, dx" in line for line in new) and any("store(" in line for line in old)
    assert not any("def corrected_backward" in line for line in old)
    assert {*new} <= {*source_of(after).splitlines()}
    assert "streamed_backward" in shown.data["text/plain"]
    with pytest.raises(ValueError, match="after: corrected_backward is the same"):
        show_change(before, before)


def test_a_fence_is_longer_than_any_in_the_source(tricky: ModuleType) -> None:
    path = Path(str(tricky.__file__))
    path.write_text(TRICKY.replace("not a docstring", "````"), encoding="utf-8")
    with capture_output() as captured:
        show(tricky.Outer)
    assert captured.outputs[0].data["text/markdown"].startswith("`````python\n")
