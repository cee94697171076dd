"""Shows the present source of the package in a notebook.

A chapter that shows source turns red when that source changes, until somebody has reread it.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

Definition = type | Callable[..., Any]
_HOLDS_DOCSTRING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def source_of(definition: Definition, *, docstring: bool = False) -> str:
    """Source of a function, method or class of normlab, dedented, as it stands in the file.

    Docstrings, its own and those of its methods, are cut out unless `docstring` keeps them.

    Raises:
        TypeError: `definition` has no source of its own; pass a function, method or class.
        ValueError: `definition` is not defined in normlab.
    """
    definition = inspect.unwrap(definition)
    if not (inspect.isfunction(definition) or inspect.isclass(definition)):
        raise TypeError(
            f"definition: got {definition!r}; expected a function, method or class of normlab"
        )
    module = definition.__module__
    if module.partition(".")[0] != "normlab":
        raise ValueError(
            f"definition: {definition.__qualname__} is defined in {module}; "
            "only source of normlab is shown"
        )
    source = textwrap.dedent(inspect.getsource(definition)).rstrip()
    return source if docstring else _without_docstrings(source)


def show(definition: Definition, *more: Definition, docstring: bool = False) -> None:
    """Display the source of functions, methods or classes of normlab, highlighted.

    Each stands under the name of its module. `docstring` keeps the docstrings, which the API pages
    print anyway.

    Raises:
        TypeError: an argument is no function, method or class.
        ValueError: an argument is not defined in normlab.
    """
    listings = []
    for each in (definition, *more):
        source = source_of(each, docstring=docstring)
        listings.append(f"# {inspect.unwrap(each).__module__}\n{source}")
    names = ", ".join(map(_name, (definition, *more)))
    _display("python", "\n\n\n".join(listings), f"Source of {names}")


def show_change(before: Definition, after: Definition, *, around: int = 2) -> None:
    """Display what a function of normlab changes in another, new lines behind a plus.

    `around` equal lines stand before and behind a change. That the name is another is not shown.

    Raises:
        TypeError: an argument is no function, method or class.
        ValueError: an argument is not defined in normlab, or nothing changes.
    """
    old, new = source_of(before), source_of(after)
    old = re.sub(rf"\b(def|class) {before.__name__}\b", rf"\1 {after.__name__}", old, count=1)
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=around, lineterm=""))
    if not lines:
        raise ValueError(f"after: {after.__name__} is the same as {before.__name__}")
    text = "\n".join("  ..." if line.startswith("@@") else line for line in lines[2:])
    # a sign and a space, so that the columns of the source stay equal
    text = re.sub(r"(?m)^([-+])", r"\1 ", re.sub(r"(?m)^ ", "  ", text))
    _display("diff", text.removeprefix("  ...\n"), f"From {_name(before)} to {_name(after)}")


def _name(definition: Definition) -> str:
    return f"{definition.__module__}.{definition.__qualname__}"


def _display(language: str, text: str, plain: str) -> None:
    from IPython.display import display

    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    markdown = f"{fence}{language}\n{text}\n{fence}"
    display({"text/plain": plain, "text/markdown": markdown}, raw=True)


def _without_docstrings(source: str) -> str:
    """Cut every docstring out of `source`; the other characters stay as they are."""
    lines = source.splitlines(keepends=True)
    # From the last to the first, so that the positions of those to come stay right.
    for node in reversed(list(_nodes_with_docstring(ast.parse(source)))):
        text = node.body[0]
        assert text.end_lineno is not None and text.end_col_offset is not None
        first, last = text.lineno - 1, text.end_lineno - 1
        # The parser counts bytes of UTF-8.
        before = lines[first].encode()[: text.col_offset].decode()
        after = lines[last].encode()[text.end_col_offset :].decode()
        if len(node.body) == 1:
            lines[first : last + 1] = [before + "..." + after]
        elif before.strip() or after.strip():
            lines[first : last + 1] = [before + after.lstrip().removeprefix(";").lstrip(" ")]
        else:
            blank = last + 1 < len(lines) and not lines[last + 1].strip()
            del lines[first : last + 1 + blank]
    return "".join(lines)


def _nodes_with_docstring(
    tree: ast.Module,
) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _HOLDS_DOCSTRING) and ast.get_docstring(node, clean=False) is not None
    ]
    return sorted(nodes, key=lambda node: (node.body[0].lineno, node.body[0].col_offset))
