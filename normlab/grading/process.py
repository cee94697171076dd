"""Runs the cells of one notebook in a process of its own; needs nothing but Python.

Called as `python -P process.py CELLS RESULTS`. CELLS is a JSON list of [number, source]. For each
cell, one line of JSON goes to RESULTS when it starts and one when it ends, so that a cell that
never ends, or that ends the process, can be named. The names of files on the disk do not matter
here: nothing is imported but what the cells import.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import sys
import types
from pathlib import Path

# The prints of an endless loop must not fill the memory.
MOST_CHARACTERS = 100_000


class Printed(io.StringIO):
    """Keeps the first characters that are written to it."""

    def write(self, text: str) -> int:
        room = MOST_CHARACTERS - self.tell()
        super().write(text[: max(room, 0)])
        return len(text)


def run_cell(number: int, source: str, names: dict[str, object]) -> tuple[str, str | None]:
    """What the cell prints, and how it fails, or None."""
    name = f"<cell {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    printed = Printed()
    failure = None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            exec(compile(source, name, "exec"), names)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            failure = f"{type(error).__name__}: {error}".rstrip(": ")
    return printed.getvalue(), failure


def main(cells: str, results: str) -> None:
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module  # classes of a cell are looked up here
    with open(results, "w", encoding="utf-8") as file:
        for number, source in json.loads(Path(cells).read_text(encoding="utf-8")):
            print(json.dumps({"started": number}), file=file, flush=True)
            printed, failure = run_cell(number, source, vars(module))
            line = {"ended": number, "printed": printed, "failure": failure}
            print(json.dumps(line), file=file, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
