"""Runs the cells of one notebook in a process of its own.

Called as `python -P process.py GIVEN RESULTS`. GIVEN is JSON: the modules whose checks are
watched, and [number, [source, needed]] of each cell, whose `needed` runs where its source fails.
For each cell, one line of JSON goes to RESULTS when it starts and one when it ends, so that a cell
that never ends, or that ends the process, can be named. What the cells print is of no interest: the
verdicts are what the checks return.
"""

from __future__ import annotations

import functools
import importlib
import json
import linecache
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

Verdicts = list[dict[str, Any]]


def find_checks(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    """The checks that a module or a file of its folder defines; none that it imports to use."""
    return {
        name: check
        for name, check in vars(module).items()
        if name.startswith("check_") and check.__module__.startswith(module.__name__)
    }


def watch(name: str, verdicts: Verdicts) -> None:
    """Let the checks of a module write down what they return."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        return  # the name of a check, or a slip that the cell itself will report
    for check_name, check in find_checks(module).items():
        setattr(module, check_name, write_down(check, verdicts))


def write_down(check: Callable[..., Any], verdicts: Verdicts) -> Callable[..., Any]:
    """The check, which writes down its verdict, and the seed and the chapter of its variant."""
    file = check.__module__.split(".")[3]  # of normlab.book.exercises

    @functools.wraps(check)
    def watched(*args: Any, **kwargs: Any) -> Any:
        before = len(verdicts)
        verdict = check(*args, **kwargs)
        del verdicts[before:]  # of checks that this one has called
        seed, chapter = kwargs.get("seed"), str(kwargs.get("chapter", ""))
        said = {"seed": seed if isinstance(seed, int) else None, "chapter": chapter}
        verdicts.append({"check": f"{file}.{check.__name__}", "verdict": str(verdict), **said})
        return verdict

    return watched


def run_cell(number: int, source: str, names: dict[str, object]) -> str:
    """How the cell fails, or ""."""
    name = f"<cell {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    try:
        exec(compile(source, name, "exec", dont_inherit=True), names)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return f"raises {type(error).__name__}: {error}".rstrip(": ")
    return ""


def main(given: str, results: str) -> None:
    modules, cells = json.loads(Path(given).read_text(encoding="utf-8"))
    sys.argv[1:] = []  # none of the cells' business
    verdicts: Verdicts = []
    for name in modules:
        watch(name, verdicts)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module  # classes of a cell are looked up here
    vars(module)["display"] = lambda *_, **__: None  # what Jupyter gives to every cell
    with open(results, "w", encoding="utf-8") as file:
        for number, (source, needed) in cells:
            print(json.dumps({"started": number}), file=file, flush=True)
            failure = run_cell(number, source, vars(module))
            if failure:
                run_cell(number, needed, vars(module))
            line = {"ended": number, "verdicts": verdicts, "failure": failure}
            print(json.dumps(line), file=file, flush=True)
            verdicts.clear()


if __name__ == "__main__":
    main(*sys.argv[1:])
