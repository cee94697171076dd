"""From a notebook to a verdict for each of its tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from normlab.grading import process
from normlab.grading.reading import Cell, GradingError, find_graders, find_tasks, read_cells

__all__ = ["GradingError", "NotebookReport", "Task", "grade_notebook"]

UNANSWERED = "not answered yet"


@dataclass(frozen=True)
class Task:
    """One call of a check.

    Attributes:
        check: name of the check.
        title: of the exercise, or "".
        cell: number of the cell, counted from 1 over all cells.
        status: "right", "wrong", "not answered yet", or "not graded".
        message: what is wrong, or why there is no grade; "" otherwise.
    """

    check: str
    title: str
    cell: int
    status: str
    message: str = ""


@dataclass
class NotebookReport:
    """What became of the tasks of one notebook.

    Attributes:
        notebook: its path, as given.
        tasks: in the order of the notebook.
        errors: cells that failed, one sentence each.
        notes: lines that were not executed.
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
            title = f" ({task.title})" if task.title else ""
            lines.append(f"  cell {task.cell:3}  {task.check}{title}: {text}")
        lines += [f"  error: {error}" for error in self.errors]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def grade_notebook(path: str | Path, *, limit: float = 600.0) -> NotebookReport:
    """Run a notebook's own code cells in a fresh process and collect what its checks say.

    A task is a call of a check from `normlab.checks.exercises`, and its grade is the sentence
    that the cell prints. Only the code of the notebook's cells is run: no stored output is
    believed, no kernel that the metadata name is started, no start-up file is read, nothing that
    lies beside the notebook is imported, and lines for the shell (`!command`, `%magic`) are left
    out. The cells run with your rights; grade strangers' work where it can do no harm.

    Args:
        path: of the notebook.
        limit: seconds for all of it. What has been printed by then is graded.

    Returns:
        report with one entry a task.

    Raises:
        GradingError: the file is no notebook, or no cell of it calls a check.
        ValueError: `limit` is not positive.
    """
    if not limit > 0:
        raise ValueError(f"limit: got {limit!r}; expected a positive number of seconds")
    path = Path(path)
    cells = read_cells(path)
    graders, replaced = find_graders(cells)
    calls = {cell.number: find_tasks(cell, graders) for cell in cells}
    if not any(calls.values()):
        raise GradingError(
            f"{path}: no cell calls a check from normlab.checks.exercises, so there is nothing to "
            "grade; give the notebook of a chapter, with its last lines print(check_...(answer))"
        )
    report = NotebookReport(str(path))
    report.notes += [f"cell {c.number}: not executed: {x}" for c in cells for x in c.left_out]
    outcomes, ending = _execute(cells, path.resolve().parent, limit)
    for cell in cells:
        printed, failure = outcomes.get(cell.number, ("", None))
        reason = "" if cell.number in outcomes else f"not reached: {ending}"
        if failure is not None:
            reason = f"the cell raises {failure}"
            report.errors.append(f"cell {cell.number} raises {failure}")
        elif replaced:
            reason = f"the notebook gives {', '.join(sorted(replaced))} another meaning"
        report.tasks += _grade(cell, calls[cell.number], printed, reason)
    if ending:
        report.errors.append(ending)
    return report


def _execute(
    cells: list[Cell], folder: Path, limit: float
) -> tuple[dict[int, tuple[str, str | None]], str]:
    """Cell number -> what it printed and how it failed; and why not all cells ended, or ""."""
    with tempfile.TemporaryDirectory() as scratch:
        given, results = Path(scratch, "cells.json"), Path(scratch, "results.jsonl")
        given.write_text(json.dumps([(c.number, c.source) for c in cells]), encoding="utf-8")
        environment = {**os.environ, "MPLBACKEND": "agg", "IPYTHONDIR": scratch}
        environment.setdefault("OMP_NUM_THREADS", "1")
        ending = ""
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(process.__file__), str(given), str(results)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=limit,
                check=False,
            )
            if done.returncode != 0:
                ending = f"the process ended with status {done.returncode}"
        except subprocess.TimeoutExpired:
            ending = f"the time limit of {limit:g} s was over"
        text = results.read_text(encoding="utf-8") if results.exists() else ""
    outcomes: dict[int, tuple[str, str | None]] = {}
    running = None
    for line in text.splitlines():
        entry = json.loads(line)
        running = entry.get("started")
        if "ended" in entry:
            outcomes[entry["ended"]] = (entry["printed"], entry["failure"])
    if not ending and len(outcomes) < len(cells):
        ending = "the process ended itself"
    if ending and running is not None:
        ending += f" in cell {running}"
    return outcomes, ending


def _grade(cell: Cell, checks: list[str], printed: str, reason: str) -> list[Task]:
    """One task for each check; `reason` says why nothing that was printed counts."""
    verdicts = [line for line in printed.splitlines() if _is_verdict(line)]
    if not reason and len(verdicts) != len(checks):
        reason = (
            f"checks called: {len(checks)}, verdicts printed: {len(verdicts)}; end the cell with "
            "print(check_...(answer))"
        )
    if reason:
        return [Task(check, cell.title, cell.number, "not graded", reason) for check in checks]
    return [
        Task(check, cell.title, cell.number, *_split(verdict))
        for check, verdict in zip(checks, verdicts, strict=True)
    ]


def _is_verdict(line: str) -> bool:
    return line in ("right", UNANSWERED) or line.startswith("wrong: ")


def _split(verdict: str) -> tuple[str, str]:
    status, _, message = verdict.partition(": ")
    return status, message
