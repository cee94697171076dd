"""From a notebook to a verdict for each of its tasks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from normlab.grading import process
from normlab.grading.reading import (
    Cell,
    GradingError,
    find_graders,
    find_modules,
    find_tasks,
    read_notebook,
)


@dataclass(frozen=True)
class Task:
    """One call of a check, or an exercise that has lost it.

    Attributes:
        check: name of the check, or "" where none is called.
        title: of the exercise, or "".
        cell: number of the cell, counted from 1 over all cells.
        status: "right", "wrong", "not answered yet", or "not graded".
        message: what is wrong, or why there is no grade; "" otherwise.
        seed: of the variant that was answered, or None.
    """

    check: str
    title: str
    cell: int
    status: str
    message: str = ""
    seed: int | None = None


@dataclass
class NotebookReport:
    """What became of the tasks of one notebook.

    Attributes:
        notebook: its path, as given.
        tasks: in the order of the notebook.
        errors: cells that failed, one sentence each.
        notes: lines that were not executed, and exercises that have no check.
    """

    notebook: str
    tasks: list[Task] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether there is a task, every task is right, and no cell failed."""
        statuses = {task.status for task in self.tasks}
        return statuses == {"right"} and not self.errors

    def to_dict(self) -> dict[str, Any]:
        """The report as lists, strings and numbers, ready for JSON."""
        right = sum(task.status == "right" for task in self.tasks)
        counts = {"passed": self.passed, "right": right, "total": len(self.tasks)}
        return {**counts, **asdict(self)}

    def __str__(self) -> str:
        right = sum(task.status == "right" for task in self.tasks)
        lines = [f"{self.notebook}: {right} of {len(self.tasks)} right"]
        for task in self.tasks:
            text = f"{task.status}: {task.message}" if task.message else task.status
            seed = "" if task.seed is None else f"seed {task.seed}"
            title = f"({task.title})" if task.title and task.check else task.title
            name = " ".join(filter(None, (task.check, title)))
            lines.append(f"  cell {task.cell:3}  {', '.join(filter(None, (name, seed)))}: {text}")
        lines += [f"  error: {error}" for error in self.errors]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def grade_notebook(path: str | Path, *, limit: float = 600.0) -> NotebookReport:
    """Run a notebook's own code cells in a fresh process and collect what its checks say.

    A task is a call of a check from `normlab.exercises`, and its grade is the sentence
    that the check returns, whatever the cell prints. An exercise below which no check is called
    is "not graded", unless its title says that it is open. Only the code of the notebook's cells
    is run: no stored output is believed, no kernel that the metadata name is started, no start-up
    file is read, nothing that lies beside the notebook is imported, and lines for the shell
    (`!command`, `%magic`, `name?`) are left out. The cells run with your rights, in the folder of
    the notebook; grade strangers' work where it can do no harm.

    Args:
        path: of the notebook.
        limit: seconds for all of it. The cells that have ended by then are graded.

    Returns:
        report with one entry a task.

    Raises:
        GradingError: the file is no notebook, or no cell of it calls a check.
        ValueError: `limit` is not positive.
    """
    if not limit > 0:
        raise ValueError(f"limit: got {limit!r}; expected a positive number of seconds")
    path = Path(path)
    cells, exercises = read_notebook(path)
    graders, replaced = find_graders(cells)
    calls = {cell.number: find_tasks(cell, graders) for cell in cells}
    if not any(calls.values()):
        raise GradingError(
            f"{path}: no cell calls a check from normlab.exercises, so there is nothing to "
            "grade; give the notebook of a chapter, with its last lines print(check_...(answer))"
        )
    report = NotebookReport(str(path))
    report.notes += [f"cell {c.number}: not executed: {x}" for c in cells for x in c.left_out]
    outcomes, ending = _execute(cells, path.resolve().parent, limit)
    for cell in cells:
        verdicts, failure = outcomes.get(cell.number, ([], None))
        reason = "" if cell.number in outcomes else f"not reached: {ending}"
        if failure is not None:
            reason = f"the cell raises {failure}"
            report.errors.append(f"cell {cell.number} raises {failure}")
        elif replaced:
            reason = f"the notebook gives {', '.join(sorted(replaced))} another meaning"
        report.tasks += _grade(cell, calls[cell.number], verdicts, reason)
    graded = {task.title for task in report.tasks}
    for title, number in exercises.items():
        if title not in graded and "(open)" in title:
            report.notes.append(f"exercise {title!r}: has no check; read the answer")
        elif title not in graded:
            reason = "no cell below it calls a check; restore the line print(check_...(answer))"
            report.tasks.append(Task("", title, number, "not graded", reason))
    report.tasks.sort(key=lambda task: task.cell)
    if ending:
        report.errors.append(ending)
    return report


Outcomes = dict[int, tuple[list[dict[str, Any]], str | None]]


def _execute(cells: list[Cell], folder: Path, limit: float) -> tuple[Outcomes, str]:
    """Cell number -> what its checks returned and how it failed; and why not all ended, or ""."""
    with tempfile.TemporaryDirectory() as scratch:
        given, results = Path(scratch, "given.json"), Path(scratch, "results.jsonl")
        sources = [(c.number, c.source) for c in cells]
        given.write_text(json.dumps([find_modules(cells), sources]), encoding="utf-8")
        extra = {"MPLBACKEND": "agg", "IPYTHONDIR": scratch, "PYTHONIOENCODING": "utf-8:replace"}
        command = [sys.executable, "-P", str(process.__file__), str(given), str(results)]
        ending = _run(command, folder, {"OMP_NUM_THREADS": "1", **os.environ, **extra}, limit)
        text = results.read_text(encoding="utf-8") if results.exists() else ""
    outcomes: Outcomes = {}
    running = None
    for line in text.splitlines():
        entry = json.loads(line)
        running = entry.get("started")
        if "ended" in entry:
            failure = entry["failure"] and _shorten(entry["failure"])
            outcomes[entry["ended"]] = (entry["verdicts"], failure)
    if not ending and len(outcomes) < len(cells):
        ending = "the process ended itself"
    if ending and running is not None:
        ending += f" in cell {running}"
    return outcomes, ending


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


def _run(command: list[str], folder: Path, environment: dict[str, str], limit: float) -> str:
    """Why the command did not come to a good end, or ""."""
    with _start(command, folder, environment) as running:
        try:
            status = running.wait(limit)
        except subprocess.TimeoutExpired:
            return f"the time limit of {limit:g} s was over"
        finally:
            # What the cells started ends with them; Windows has no groups.
            with contextlib.suppress(OSError, AttributeError):
                os.killpg(running.pid, signal.SIGKILL)
            running.kill()
    return f"the process ended with status {status}" if status else ""


def _grade(
    cell: Cell, checks: list[str], verdicts: list[dict[str, Any]], reason: str
) -> list[Task]:
    """One task for each check; `reason` says why no verdict counts."""
    if not reason and len(verdicts) != len(checks):
        reason = (
            f"the cell calls {_count(checks, 'check')}, {_count(verdicts, 'verdict')}; call each "
            "check once, in the last lines of its cell: print(check_...(answer))"
        )
    if reason:
        return [Task(check, cell.title, cell.number, "not graded", reason) for check in checks]
    tasks = []
    for given in verdicts:
        status, _, message = given["verdict"].partition(": ")
        task = (given["check"], cell.title, cell.number, status, _shorten(message), given["seed"])
        tasks.append(Task(*task))
    return tasks


def _count(things: list[Any], word: str) -> str:
    return f"{len(things)} {word}" + "s" * (len(things) != 1)


def _shorten(text: str) -> str:
    """One line that can be printed anywhere; an error may tell a long story."""
    line = textwrap.shorten(text, 500, placeholder=" ...")
    return line.encode("utf-8", "backslashreplace").decode("utf-8")
