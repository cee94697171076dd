"""Finds the tasks of a notebook in its text; executes nothing."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

GRADERS = "normlab.book.exercises"
CALL = re.compile(r"\b((?:\w+\.)?check_\w+)\s*\(")
LEFT_OUT = re.compile(r"^([ \t]*)([%!?].*|[\w.]+\?{1,2}[ \t]*)$", re.MULTILINE)
# Below any other one stands something that is not Python.
PYTHON_MAGICS = ("%%capture", "%%prun", "%%time", "%%timeit")
EXERCISE = re.compile(
    r"^[`:]{3,}\s*\{exercise(?:-start)?\}[ \t]*(.*)((?:\n[ \t]*:.*)*)", re.MULTILINE
)
# What other cells need, though it may stand in the cell of an answer.
NEEDED = re.compile(
    r"^(?:from normlab\.book\.exercises[\w.]* import (?:\([^()]*\)|[^\n(]+)"
    r"|import normlab\.book\.exercises[^\n]*|seed[ \t]*=[ \t]*\d+[ \t]*(?:#[^\n]*)?)$",
    re.MULTILINE,
)
LABEL = re.compile(r"^[ \t]*:label:[ \t]*(\S+)", re.MULTILINE)


class GradingError(ValueError):
    """The notebook cannot be graded; the text says why and what to do."""


@dataclass(frozen=True)
class Cell:
    """One code cell."""

    number: int  #: position among all cells, counted from 1
    source: str  #: what is executed
    #: its lines that other cells need, which are executed also where it fails
    needed: str = ""
    #: lines for the notebook's own shell (`%magic`, `!command`, `name?`); not executed
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exercise:
    """The text of an exercise."""

    label: str  #: or "", where it has none
    title: str
    number: int  #: of its cell


@dataclass(frozen=True)
class Call:
    """One call of a function of the exercises, as it stands in a cell."""

    number: int  #: of the cell
    name: str  #: file and function, such as `rms_norm.check_rms_gradient`
    chapter: str = ""  #: that a question of any chapter is put about, where a word says it


def read_notebook(path: Path) -> tuple[list[Cell], list[Exercise]]:
    """The code cells of a notebook and the texts of its exercises, each in order.

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
    exercises: list[Exercise] = []
    for number, (kind, source) in enumerate(kinds, start=1):
        if kind == "markdown":
            for title, options in EXERCISE.findall(source):
                label = LABEL.search(options)
                exercises.append(Exercise(label[1] if label else "", title, number))
        elif kind == "code" and source.strip():
            cells.append(_prepare(number, source))
    return cells, exercises


def _prepare(number: int, source: str) -> Cell:
    if source.lstrip().startswith("%%"):
        magic, _, below = source.lstrip().partition("\n")
        if magic.split()[0] not in PYTHON_MAGICS:
            return Cell(number, "", left_out=(magic,))
        cell = _prepare(number, f"\n{below}")
        return replace(cell, left_out=(magic, *cell.left_out))
    needed = "\n".join(filter(_parse, NEEDED.findall(source)))
    if _parse(source):  # a line of a string may begin with a percent sign
        return Cell(number, source, needed)
    left_out = tuple(line for _, line in LEFT_OUT.findall(source))
    return Cell(number, LEFT_OUT.sub(r"\1pass", source), needed, left_out)


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _nodes(cells: list[Cell]) -> Iterator[ast.AST]:
    """The nodes of all cells, of those that do not parse the lines that others need."""
    for tree in filter(None, (_parse(cell.source) or _parse(cell.needed) for cell in cells)):
        yield from ast.walk(tree)


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import gives, each with the exercises that it comes from, or ""."""
    if not isinstance(node, ast.ImportFrom | ast.Import):
        return
    module = getattr(node, "module", None) or ""
    for alias in node.names:
        origin = f"{module}.{alias.name}" if module else alias.name
        ours = origin.startswith(f"{GRADERS}.") and (bool(module) or bool(alias.asname))
        name = alias.asname or alias.name.partition(".")[0]
        yield name, origin.removeprefix(f"{GRADERS}.") if ours else ""


def find_replaced(cells: list[Cell]) -> dict[str, int]:
    """Names that it imports from the exercises, each with the first cell that binds another."""
    imported: set[str] = set()
    other: dict[str, int] = {}
    for cell in cells:
        for node in _nodes([cell]):
            for name, origin in _imports(node):
                if origin:
                    imported.add(name)
                else:
                    other.setdefault(name, cell.number)
            for name in _bound(node):
                other.setdefault(name, cell.number)
    return {name: number for name, number in other.items() if name in imported}


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


def _called(source: str) -> list[tuple[str, str]]:
    """What a cell calls, as `holder.name` or `name`, with the word for its chapter, in order.

    A cell that does not parse is searched as text, so that a broken answer stays a task.
    """
    tree = _parse(source)
    if tree is None:
        return [(name, "") for name in CALL.findall(source)]
    calls = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            said = [k.value for k in node.keywords if k.arg == "chapter"]
            chapter = said[0].value if said and isinstance(said[0], ast.Constant) else ""
            calls.append((node.lineno, node.col_offset, ast.unparse(node.func), str(chapter)))
    return [(name, chapter) for _, _, name, chapter in sorted(calls)]


def find_calls(cells: list[Cell]) -> list[Call]:
    """The calls of what the notebook imports from the exercises, in order."""
    origins: dict[str, str] = {}
    found = []
    for cell in cells:
        origins.update(pair for node in _nodes([cell]) for pair in _imports(node))
        for name, chapter in _called(cell.source):
            holder, _, rest = name.partition(".")
            parts = ".".join(filter(None, (origins.get(holder, ""), rest))).split(".")
            if origins.get(holder) and len(parts) > 1:
                found.append(Call(cell.number, f"{parts[0]}.{parts[-1]}", chapter))
    return found
