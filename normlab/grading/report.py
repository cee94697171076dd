"""What grading a notebook gives."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from normlab import __version__


@dataclass(frozen=True)
class Task:
    """One exercise, or one question with a seed.

    Attributes:
        label: of the exercise in the book, or "".
        check: name of its check.
        title: of the exercise as the notebook has it, or of the variant; or "".
        cell: number of the cell that answers it, else of its text, counted from 1 over all cells;
            None where the notebook has neither.
        status: "right", "wrong", "not answered yet", or "not graded".
        message: what is wrong, or why there is no grade; "" otherwise.
        seed: of the variant that was answered, or None.
    """

    label: str
    check: str
    title: str
    cell: int | None
    status: str
    message: str = ""
    seed: int | None = None


@dataclass
class NotebookReport:
    """What became of the tasks of one notebook.

    Attributes:
        notebook: its path, as given.
        chapter: the page of the book whose exercises are counted, or several.
        version: of normlab.
        seed: the one that was demanded, or None.
        tasks: all exercises of the page, in its order, then questions with a seed.
        errors: cells that failed, one sentence each.
        notes: what did not count, what was not executed, and what a reader has to judge.
    """

    notebook: str
    chapter: str
    version: str = __version__
    seed: int | None = None
    tasks: list[Task] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def right(self) -> int:
        """How many tasks are right."""
        return sum(task.status == "right" for task in self.tasks)

    @property
    def passed(self) -> bool:
        """Whether there is a task, every task is right, and no cell failed."""
        return 0 < self.right == len(self.tasks) and not self.errors

    def to_dict(self) -> dict[str, Any]:
        """The report as lists, strings and numbers, ready for JSON."""
        counts = {"passed": self.passed, "right": self.right, "total": len(self.tasks)}
        return {**counts, **asdict(self)}

    def __str__(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        about = f"{self.chapter}{seed}, normlab {self.version}"
        lines = [f"{self.notebook}: {self.right} of {len(self.tasks)} right ({about})"]
        lines += [f"  {_say(task)}" for task in self.tasks]
        lines += [f"  error: {error}" for error in self.errors]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def _say(task: Task) -> str:
    cell = "missing " if task.cell is None else f"cell {task.cell:3}"
    seed = "" if task.seed is None else f", seed {task.seed}"
    text = f"{task.status}: {task.message}" if task.message else task.status
    return f"{cell}  {task.check} ({task.title or task.label}){seed}: {text}"
