"""Finds the tasks of a notebook in its text; executes nothing."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

GRADERS = "normlab.exercises"
CALL = re.compile(r"\b(check_\w+)\s*\(")
LEFT_OUT = re.compile(r"^([ \t]*)([%!?].*|[\w.]+\?{1,2}[ \t]*)$", re.MULTILINE)
# Below any other one stands something that is not Python.
PYTHON_MAGICS = ("%%capture", "%%prun", "%%time", "%%timeit")
TITLE = re.compile(r"^[`:]{3,}\s*\{exercise(?:-start)?\}[ \t]*(.*)$", re.MULTILINE)


class GradingError(ValueError):
    """The notebook cannot be graded; the text says why and what to do."""


@dataclass(frozen=True)
class Cell:
    """One code cell."""

    number: int  #: position among all cells, counted from 1
    source: str  #: what is executed
    #: lines for the notebook's own shell (`%magic`, `!command`, `name?`); not executed
    left_out: tuple[str, ...] = ()
    title: str = ""  #: of the exercise in the text above, or ""


def read_notebook(path: Path) -> tuple[list[Cell], dict[str, int]]:
    """The code cells of a notebook, in order, and the exercises with the numbers of their cells.

    Raises:
        GradingError: there is no such file, or it is no notebook of format 4.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8-sig"))
        kinds = [(cell["cell_type"], "".join(cell["source"])) for cell in raw["cells"]]
    except OSError as error:
        raise GradingError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise GradingError(
            f"{path}: is no notebook, its text is not JSON in UTF-8 ({error}); save it again in "
            "Jupyter"
        ) from error
    except (KeyError, TypeError) as error:
        raise GradingError(
            f"{path}: is no notebook of format 4 (nothing under {error}); save it again in Jupyter"
        ) from error
    cells: list[Cell] = []
    exercises: dict[str, int] = {}
    title = ""
    for number, (kind, source) in enumerate(kinds, start=1):
        if kind == "markdown":
            exercises |= dict.fromkeys(TITLE.findall(source), number)
            title = (TITLE.findall(source) or [title])[-1]
        elif kind == "code" and source.strip():
            cells.append(_prepare(number, source, title))
    return cells, exercises


def _prepare(number: int, source: str, title: str) -> Cell:
    if source.lstrip().startswith("%%"):
        magic, _, below = source.lstrip().partition("\n")
        if magic.split()[0] not in PYTHON_MAGICS:
            return Cell(number, "", (magic,), title)
        cell = _prepare(number, f"\n{below}", title)
        return replace(cell, left_out=(magic, *cell.left_out))
    if _parse(source):  # a line of a string may begin with a percent sign
        return Cell(number, source, (), title)
    left_out = tuple(line for _, line in LEFT_OUT.findall(source))
    return Cell(number, LEFT_OUT.sub(r"\1pass", source), left_out, title)


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _nodes(cells: list[Cell]) -> Iterator[ast.AST]:
    """The nodes of all cells that parse."""
    for tree in filter(None, (_parse(cell.source) for cell in cells)):
        yield from ast.walk(tree)


def find_graders(cells: list[Cell]) -> tuple[set[str], set[str]]:
    """Names that the notebook imports from the exercises, and those it binds to other things."""
    imported: set[str] = set()
    other: set[str] = set()
    for node in _nodes(cells):
        if isinstance(node, ast.ImportFrom | ast.Import):
            module = getattr(node, "module", None) or ""
            for alias in node.names:
                origin = f"{module}.{alias.name}" if module else alias.name
                name = alias.asname or alias.name.partition(".")[0]
                ours = origin.startswith(GRADERS) and (bool(module) or bool(alias.asname))
                (imported if ours else other).add(name)
        else:
            other |= set(_bound(node))
    return imported, imported & other


def find_modules(cells: list[Cell]) -> list[str]:
    """What may be modules with checks among the things that the notebook imports."""
    found = set()
    for node in _nodes(cells):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return sorted(name for name in found if name.startswith(f"{GRADERS}."))


def _bound(node: ast.AST) -> Iterator[str]:
    """Names that a statement gives a value, and those whose attributes it sets."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield getattr(node.value, "id", "")
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr" and node.args:
        yield getattr(node.args[0], "id", "")


def find_tasks(cell: Cell, graders: set[str]) -> list[str]:
    """Names of the checks that the cell calls, in order, such as `rms.check_rms_norm`.

    A cell that does not parse is searched as text, so that a broken answer stays a task.
    """
    tree = _parse(cell.source)
    if tree is None:
        return CALL.findall(cell.source)
    calls = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                holder = name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=holder), attr=name)):
                pass
            case _:
                continue
        if name.startswith("check_") and holder in graders:
            calls.append((node.lineno, node.col_offset, name))
    return [name for _, _, name in sorted(calls)]
