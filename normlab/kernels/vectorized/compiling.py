"""How loops are compiled and kept: in a folder named after the content of the sources.

numba notices a change in a function's own file only. Here the functions of one file are compiled
into those of another, so that the name of the folder stands for all files.
"""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
import inspect
import os
import platform
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba import njit
from numba.core import config

from normlab.kernels.vectorized.vectors import LANES, cpu_features


def vectors(first: int, last: int | None = None) -> Iterator[tuple[int, int]]:
    """Where each vector of a row begins, and how many numbers it has, as `range` counts.

    The compiler is given two loops in the place of one: over whole vectors, whose length it knows,
    and over the rest.

    Example:
        >>> list(vectors(70))
        [(0, 32), (32, 32), (64, 6)]
    """
    first, last = (0, first) if last is None else (first, last)
    for i in range(first, last, LANES):
        yield i, min(LANES, last - i)


class _Split(ast.NodeTransformer):
    """Two loops in the place of each over :func:`vectors`."""

    def visit_For(self, loop: ast.For) -> Any:
        self.generic_visit(loop)
        call = loop.iter
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "vectors"):
            return loop
        i, k = (name.id for name in loop.target.elts)
        first, last = ["0", *(f"({ast.unparse(each)})" for each in call.args)][-2:]
        rest = f"{i}_rest"
        whole, over, then = ast.parse(
            f"{rest} = {last} - ({last} - {first}) % {LANES}\n"
            f"for {i} in range({first}, {rest}, {LANES}): {k} = {LANES}\n"
            f"if {rest} < {last}: {i} = {rest}; {k} = {last} - {rest}"
        ).body
        over.body += copy.deepcopy(loop.body)
        then.body += loop.body
        return [ast.copy_location(each, loop) for each in (whole, over, then)]


def _split(function: Callable[..., Any]) -> Any:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    tree.body[0].decorator_list = []
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    code = compile(
        ast.fix_missing_locations(_Split().visit(tree)), inspect.getfile(function), "exec"
    )
    made: dict[str, Any] = {}
    exec(code, function.__globals__, made)
    return functools.update_wrapper(made[function.__name__], function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile into its callers. A division by zero gives what it gives in torch."""
    return njit(forceinline=True, error_model="numpy")(_split(function))


def folder_of(sources: Path) -> str:
    """The folder of what was compiled from these sources."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(sources.glob("*.py")):
        digest.update(path.read_bytes())
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given is None:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        given = os.path.join(base, "normlab")
    return os.path.join(given, f"kernels-{digest.hexdigest()[:16]}")


FOLDER = folder_of(Path(__file__).parent)


def compiled(function: Callable[..., None]) -> Any:
    """Compile at the first call, without holding the interpreter, and keep the result on disk."""
    function = _split(function)
    before = config.CACHE_DIR
    config.CACHE_DIR = FOLDER
    try:
        return njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError as error:  # no folder can be written
        warnings.warn(
            f"compiled kernels cannot be kept, so that each process compiles its own: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return njit(nogil=True, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before


def converts_halves() -> bool:
    """Whether the processor that is compiled for converts float16 to float32 and back.

    Where it does not, LLVM calls functions that numba does not link, and the process ends.
    """
    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686"):
        return platform.machine().lower() in ("aarch64", "arm64")
    return "f16c" in cpu_features()
