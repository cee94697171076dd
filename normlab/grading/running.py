"""Runs the cells of a notebook in processes of their own, each cell within its time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.grading import process

POLL = 0.1  # seconds


@dataclass(frozen=True)
class Outcome:
    """What became of a cell."""

    verdicts: list[dict[str, Any]]  #: what its checks returned, in order
    failure: str = ""  #: such as "raises NameError: ..."; "" where it came to its end


@dataclass(frozen=True)
class Limits:
    """Until when all of it may run, and how many seconds one cell."""

    deadline: float  #: on the monotonic clock
    cell: float


Sources = dict[int, tuple[str, str]]  # of each cell: all of it, and the lines that others need


def execute(
    sources: Sources, modules: list[str], folder: Path, limit: float, cell_limit: float
) -> tuple[dict[int, Outcome], str]:
    """What became of each cell, by its number; and why some were not reached, or "".

    Of a cell that does not end, or that ends its process, the next run has the lines that others
    need, and a later one nothing, should it be these. What was found in an earlier run stays.
    """
    left = dict(sources)
    limits = Limits(time.monotonic() + limit, cell_limit)
    outcomes: dict[int, Outcome] = {}
    while True:
        found, cell, ending = _execute_once(left, modules, folder, limits)
        outcomes = found | outcomes
        if time.monotonic() >= limits.deadline and ending:
            where = "" if cell is None else f" in cell {cell}"
            return outcomes, f"the time limit of {limit:g} s was over{where}"
        if cell is None:
            return outcomes, ending and f"the process {ending}"
        left[cell] = (left[cell][1], "")
        outcomes.setdefault(cell, Outcome([], ending))


def _execute_once(
    sources: Sources, modules: list[str], folder: Path, limits: Limits
) -> tuple[dict[int, Outcome], int | None, str]:
    """What became of the cells that ended, which one did not, and what is to be said of it."""
    with tempfile.TemporaryDirectory() as scratch:
        given, results = Path(scratch, "given.json"), Path(scratch, "results.jsonl")
        given.write_text(json.dumps([modules, list(sources.items())]), encoding="utf-8")
        extra = {"MPLBACKEND": "agg", "IPYTHONDIR": scratch, "PYTHONIOENCODING": "utf-8:replace"}
        command = [sys.executable, "-P", str(process.__file__), str(given), str(results)]
        environment = {"OMP_NUM_THREADS": "1", **os.environ, **extra}
        ending = _run(command, folder, environment, results, limits)
        text = results.read_text(encoding="utf-8") if results.exists() else ""
    outcomes: dict[int, Outcome] = {}
    running = None
    for line in text.splitlines():
        entry = json.loads(line)
        running = entry.get("started")
        if "ended" in entry:
            outcomes[entry["ended"]] = Outcome(entry["verdicts"], shorten(entry["failure"]))
    return outcomes, running, ending if len(outcomes) < len(sources) else ""


def _start(
    command: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    none = subprocess.DEVNULL
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=none,
        stdout=none,
        stderr=none,
        start_new_session=True,
    )


def _run(
    command: list[str], folder: Path, environment: dict[str, str], results: Path, limits: Limits
) -> str:
    """How the command ended, or was ended because it wrote nothing for the time of a cell."""
    with _start(command, folder, environment) as running:
        written, since = 0, time.monotonic()
        try:
            while time.monotonic() < limits.deadline:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = running.wait(POLL)
                    return f"ends with status {status}" if status else "ends the process"
                size = results.stat().st_size if results.exists() else 0
                if size != written:
                    written, since = size, time.monotonic()
                elif written and time.monotonic() - since > limits.cell:
                    return f"does not end within {limits.cell:g} s"
            return "does not end"
        finally:
            # What the cells started ends with them; Windows has no groups.
            with contextlib.suppress(OSError, AttributeError):
                os.killpg(running.pid, signal.SIGKILL)
            running.kill()


def shorten(text: str) -> str:
    """One line that can be printed anywhere; an error may tell a long story."""
    line = textwrap.shorten(text, 500, placeholder=" ...")
    return line.encode("utf-8", "backslashreplace").decode("utf-8")
