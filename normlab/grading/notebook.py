"""From a notebook to a verdict for each of its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from normlab.grading.pages import PAGES
from normlab.grading.reading import (
    Call,
    Exercise,
    GradingError,
    find_calls,
    find_modules,
    find_replaced,
    read_notebook,
)
from normlab.grading.report import NotebookReport, Task
from normlab.grading.running import Outcome, execute, shorten

VARIANTS = "variants."  # what asks for a seed
OF_ANY_CHAPTER = "variants.check_answer"  # belongs to no page
KEYS = ("variants.solve", "variants.right_")


@dataclass(frozen=True)
class Try:
    """What became of one call of a check."""

    check: str
    chapter: str  #: that a question of any chapter was put about
    cell: int
    status: str
    message: str = ""
    seed: int | None = None


def grade_notebook(
    path: str | Path, *, limit: float = 600.0, cell_limit: float = 60.0, seed: int | None = None
) -> NotebookReport:
    """Run a notebook's own code cells in a fresh process and collect what its checks say.

    The tasks are the exercises of the page of the book from which the notebook has a label or a
    check, also those that it has lost. Each counts once, and its grade is the sentence that its
    own check returns, wherever that is called and whatever a cell prints; of several calls the
    last counts. A question of `variants.check_answer` is one more task, unless the notebook has
    exercises and none of the question's chapter.

    Only the code of the notebook's cells is run: no stored output is believed, no kernel that the
    metadata name is started, no start-up file is read, nothing that lies beside the notebook is
    imported, and lines for the shell (`!command`, `%magic`, `name?`) are left out. A cell that does
    not end, or that ends the process, is named, and the others run again without it. Of a cell that
    fails, the lines that import exercises or set `seed` still run. The cells run with your rights,
    in the folder of the notebook; grade strangers' work where it can do no harm.

    Args:
        path: of the notebook.
        limit: seconds for all of it. The cells that have ended by then are graded.
        cell_limit: seconds for each cell.
        seed: the only one whose variants are graded; None takes any.

    Returns:
        report with one entry a task.

    Raises:
        GradingError: the file is no notebook, or has no exercise of the book and no check.
        ValueError: `limit` or `cell_limit` is not positive.
    """
    for name, seconds in (("limit", limit), ("cell_limit", cell_limit)):
        if not seconds > 0:
            raise ValueError(f"{name}: got {seconds!r}; expected a positive number of seconds")
    path = Path(path)
    cells, texts = read_notebook(path)
    calls = find_calls(cells)
    checks = [call for call in calls if ".check_" in call.name]
    pages = _pages({text.label for text in texts} | {call.name for call in checks})
    if not pages and not checks:
        raise GradingError(
            f"{path}: has no exercise of the book and no cell calls a check from "
            "normlab.book.exercises, so there is nothing to grade; give the notebook of a chapter, "
            "with its last lines print(check_...(answer))"
        )
    sources = {cell.number: (cell.source, cell.needed) for cell in cells}
    modules, folder = find_modules(cells), path.resolve().parent
    outcomes, ending = execute(sources, modules, folder, limit, cell_limit)
    report = NotebookReport(str(path), ", ".join(pages), seed=seed)
    report.notes += [f"cell {c.number}: not executed: {x}" for c in cells for x in c.left_out]
    failed = {number: outcome.failure for number, outcome in outcomes.items() if outcome.failure}
    first = min([text.number for text in texts] + [call.number for call in checks])
    report.errors += [
        f"cell {number}{' (above the exercises)' * (number < first)} {failure}"
        for number, failure in sorted(failed.items())
    ]
    report.errors += [ending] if ending else []
    replaced = find_replaced(cells)
    tries = []
    for cell in cells:
        outcome = outcomes.get(cell.number, Outcome([], f"was not reached: {ending}"))
        above = [(number, name) for name, number in replaced.items() if number <= cell.number]
        if above and not outcome.failure:
            number, name = min(above)
            why = f"cell {number} gives {name} another meaning; call it otherwise there"
            outcome = Outcome([], f"does not count: {why}")
        its_calls = [call for call in checks if call.number == cell.number]
        tries += list(_judge(cell.number, its_calls, outcome, seed))
    _add_exercises(report, pages, texts, tries)
    _add_variants(report, pages, [one for one in tries if one.check == OF_ANY_CHAPTER])
    report.notes += [
        f"cell {call.number}: calls {call.name}, which gives the answer"
        for call in calls
        if call.name.startswith(KEYS)
    ]
    if seed is not None and seed not in {one.seed for one in tries}:
        report.errors.append(f"no check was called with seed={seed}")
    return report


def _pages(found: set[str]) -> list[str]:
    """Those to which one of these labels or checks belongs."""
    return [page for page, tasks in PAGES.items() if found & {*tasks, *tasks.values()}]


def _judge(cell: int, calls: list[Call], outcome: Outcome, seed: int | None) -> Iterator[Try]:
    """What the checks of a cell say, where each was called as often as the cell has it written."""
    if outcome.failure:
        for call in calls:
            message = f"the cell {outcome.failure}"
            yield Try(call.name, call.chapter, cell, "not graded", message)
        return
    written = Counter(call.name for call in calls)
    said = Counter(verdict["check"] for verdict in outcome.verdicts)
    for check in written | said:
        if written[check] != said[check]:
            yield Try(
                check,
                "",
                cell,
                "not graded",
                f"the cell has {_count(written[check], 'call')} of it, and "
                f"{_count(said[check], 'verdict')}; call each check once, in the last lines of its "
                "cell: print(check_...(answer))",
            )
    for verdict in outcome.verdicts:
        check, answered = verdict["check"], verdict["seed"]
        if written[check] != said[check]:
            continue
        status, _, message = verdict["verdict"].partition(": ")
        if seed is not None and check.startswith(VARIANTS) and answered != seed:
            status, message = "not graded", f"answers seed {answered}; seed {seed} is asked"
        yield Try(check, verdict["chapter"], cell, status, shorten(message), answered)


def _add_exercises(
    report: NotebookReport, pages: list[str], texts: list[Exercise], tries: list[Try]
) -> None:
    """A task for each exercise of the pages; a note for those without a check."""
    exercises = {label: check for page in pages for label, check in PAGES[page].items()}
    by_label = {text.label: text for text in reversed(texts)}
    for label, check in exercises.items():
        text = by_label.get(label)
        if check:
            its = [one for one in tries if one.check == check]
            report.tasks.append(_task(report, check, its, label, text))
        else:
            title = text.title if text else f"{label}, which is missing"
            report.notes.append(f"exercise {title}: has no check; read the answer")
    for text in texts:
        if text.label not in exercises:
            report.notes.append(f"exercise {text.title}: none of the book's; read the answer")


def _add_variants(report: NotebookReport, pages: list[str], tries: list[Try]) -> None:
    """A task for each question of any chapter, where it belongs to the notebook."""
    chapters = sorted({one.chapter for one in tries})
    report.chapter = report.chapter or ", ".join(filter(None, chapters))
    for chapter in chapters:
        its = [one for one in tries if one.chapter == chapter]
        if not pages or chapter in {page.removesuffix("_further") for page in pages}:
            text = Exercise("", f"variant of {chapter}" if chapter else "variant", its[-1].cell)
            report.tasks.append(_task(report, OF_ANY_CHAPTER, its, "", text))
        else:
            cells = ", ".join(str(one.cell) for one in its)
            report.notes.append(f"cell {cells}: a question about {chapter} is no task here")


def _task(
    report: NotebookReport, check: str, tries: list[Try], label: str, text: Exercise | None
) -> Task:
    """The last verdict on an exercise, else why there is none; a note where there were several."""
    name, title = check.partition(".")[2], text.title if text else ""
    if not tries:
        message = f"{name} is not called; restore the exercise with its line print({name}(answer))"
        return Task(label, name, title, text.number if text else None, "not graded", message)
    last = ([one for one in tries if one.status != "not graded"] or tries)[-1]
    if len(tries) > 1:
        cells = ", ".join(str(one.cell) for one in tries)
        report.notes.append(f"{name} is called {len(tries)} times (cell {cells}) and counts once")
    return Task(label, name, title, last.cell, last.status, last.message, last.seed)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + "s" * (number != 1)
