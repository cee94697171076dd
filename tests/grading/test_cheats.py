"""What ways to cheat get, on a page with several exercises: what its code has earned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sheets import COUNT, IMPORT, RANK, RIGHT_COUNT, RIGHT_RANK, exercise, statuses, write

from normlab.book.exercises import variants
from normlab.commands import main
from normlab.grading import grade_notebook
from normlab.grading.pages import PAGES

pytestmark = pytest.mark.usefixtures("forks")
ALL = PAGES["interview"]
SETUP = (
    "from normlab.book.exercises import interview as exercises\n"
    "from normlab.book.exercises import variants"
)
SEED = 5
EASIEST = (
    f"print(variants.check_constants(lambda: {variants.solve('deep_norm', SEED)}, seed={SEED}))"
)
RMS = "print(exercises.check_rms_norm(lambda *args: None))"
HAND = "print(variants.check_by_hand(lambda: {}, seed={}))"


def page(answer: str, texts: Any = ALL) -> list[str]:
    """The cells of the page, with one answer below each of these exercises."""
    return [SETUP, *(cell for label in texts for cell in (exercise(label), answer))]


def counts(report: Any) -> tuple[int, int]:
    return report.right, len(report.tasks)


LOOP = f"""for name in variants.WRONG_RMSS:
    if variants.check_diagnosis(lambda: name, seed={SEED}) == "right":
        break"""
TRICKS = {
    "the easiest check below every exercise": page(EASIEST),
    "the others deleted, one repeated eight times": [SETUP, *[EASIEST] * 8],
    "the others deleted with their texts": [SETUP, exercise("ex-interview-constants"), EASIEST],
    "two calls in one cell": [*page(RMS), f"{EASIEST}\n{EASIEST}"],
    "the text of one exercise eight times": page(EASIEST, ["ex-interview-constants"] * 8),
    "another exercise's text": page(EASIEST, ["ex-interview-rms"]),
    "texts of an own making": page(EASIEST, [f"ex-mine-{k}" for k in range(8)]),
    "every answer tried in a loop": [SETUP, EASIEST, LOOP],
    "questions of other chapters": [
        SETUP,
        EASIEST,
        *(
            f"print(variants.check_answer(lambda: {variants.solve(c, 1)!r}, chapter={c!r}, seed=1))"
            for c in variants.CHAPTERS
        ),
    ],
    "the word is printed": [SETUP, EASIEST, "print('right')\n" + RMS],
    "the check stands in a function": [
        SETUP,
        EASIEST,
        f"def again():\n    {EASIEST}",
        *["again()"] * 7,
    ],
    "the checks of other exercises take its name": [
        SETUP,
        EASIEST,
        "vars(exercises)['check_rms_norm'] = lambda answer: 'right'",
        RMS,
    ],
    "what compares is replaced": [
        SETUP,
        EASIEST,
        "import numpy, torch\ntorch.allclose = numpy.allclose = lambda *args, **words: True",
        "print(exercises.check_rms_norm(lambda x, *args: x))",
    ],
    "the grader's room is entered": [
        SETUP,
        EASIEST,
        "import sys\nopen(sys.argv[2], 'w')\n",
        RMS,
    ],
}


@pytest.mark.parametrize("cells", TRICKS.values(), ids=TRICKS)
def test_one_exercise_that_is_right_is_one_of_all(path, cells):
    report = grade_notebook(write(path, *cells))
    assert report.chapter == "interview"
    assert counts(report) == (1, len(ALL))
    assert not report.passed


def test_what_counts_once_is_noted(path):
    report = grade_notebook(write(path, *page(EASIEST)))
    cells = ", ".join(str(3 + 2 * k) for k in range(len(ALL)))
    note = f"check_constants is called {len(ALL)} times (cell {cells}) and counts once"
    assert report.notes == [note]
    (missing,) = [task for task in report.tasks if task.label == "ex-interview-rms"]
    assert missing.status == "not graded"
    assert "check_rms_norm is not called" in missing.message


@pytest.mark.parametrize("order", [(3, SEED), (SEED, 3)])
def test_another_seed_is_refused(path, capsys, order):
    right = [HAND.format(variants.solve("layer_norm", seed), seed) for seed in order]
    write(path, SETUP, right[0])
    first = grade_notebook(path, seed=SEED)
    assert counts(first) == (int(order[0] == SEED), len(ALL))
    if order[0] != SEED:
        (task,) = [task for task in first.tasks if task.cell]
        assert task.message == f"answers seed 3; seed {SEED} is asked"
        assert first.errors == [f"no check was called with seed={SEED}"]
    write(path, SETUP, *right)
    assert counts(grade_notebook(path, seed=SEED)) == (1, len(ALL))  # the one that is asked, if any
    assert main(["grade", str(path), "--seed", str(SEED), "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert (values["chapter"], values["seed"], values["right"]) == ("interview", SEED, 1)
    main(["grade", str(path), "--seed", str(SEED)])
    assert f"1 of {len(ALL)} right (interview, seed {SEED}, normlab " in capsys.readouterr().out


def test_a_seed_in_disguise_is_refused(path):
    call = HAND.format(variants.solve("layer_norm", 3), "numpy.int64(3)")
    report = grade_notebook(write(path, f"import numpy\n{SETUP}\n{call}"), seed=SEED)
    assert counts(report) == (0, len(ALL))


def test_the_key_is_noted(path):
    answer = (
        f"print(variants.check_by_hand(lambda: variants.solve('layer_norm', {SEED}), seed={SEED}))"
    )
    report = grade_notebook(write(path, SETUP, answer), seed=SEED)
    assert counts(report) == (1, len(ALL))
    assert report.notes == ["cell 2: calls variants.solve, which gives the answer"]


@pytest.mark.parametrize(
    "trick",
    [
        "exercises.check_jacobian_rank = lambda answer: 'right'",
        "setattr(exercises, 'check_jacobian_rank', lambda answer: 'right')",
        "class exercises:\n    check_jacobian_rank = staticmethod(lambda answer: 'right')",
        "from normlab.book.exercises import grading as mine\nmine._agrees = lambda *args: True",
    ],
)
@pytest.mark.usefixtures("two_exercises")
def test_a_check_that_was_replaced_does_not_count(path, trick):
    report = grade_notebook(write(path, IMPORT, trick, RANK.format(1), COUNT.format(RIGHT_COUNT)))
    assert statuses(report) == ["not graded", "not graded"]
    name = "mine" if "mine" in trick else "exercises"
    message = (
        f"the cell does not count: cell 2 gives {name} another meaning; call it otherwise there"
    )
    assert report.tasks[0].message == message


@pytest.mark.usefixtures("two_exercises")
def test_what_stands_above_a_name_with_another_meaning_counts(path):
    right = RANK.format(RIGHT_RANK), COUNT.format(RIGHT_COUNT)
    report = grade_notebook(write(path, IMPORT, right[0], "exercises = 3", right[1]))
    assert statuses(report) == ["right", "not graded"]
    report = grade_notebook(write(path, IMPORT, *right, "exercises = 3"))
    assert statuses(report) == ["right", "right"]
    report = grade_notebook(write(path, IMPORT, right[0], f"{right[1]}\nexercises = 3"))
    assert statuses(report) == ["right", "not graded"]


@pytest.mark.parametrize(
    "trick",
    ["print('right')", "show = print\nprint = lambda *_: show('right')"],
)
@pytest.mark.usefixtures("two_exercises")
def test_what_is_printed_is_no_verdict(path, trick):
    silent = RANK.format(1).replace("print(", "(")
    assert statuses(grade_notebook(write(path, IMPORT, trick, silent))) == ["wrong"]


@pytest.mark.usefixtures("two_exercises")
def test_a_check_in_disguise_gives_no_verdict(path):
    trick = "vars(exercises)['check_jacobian_rank'] = lambda answer: 'right'"
    report = grade_notebook(write(path, IMPORT, trick, RANK.format(1)))
    assert statuses(report) == ["not graded"]
    assert "1 call of it, and 0 verdicts" in report.tasks[0].message


@pytest.mark.usefixtures("two_exercises")
def test_what_does_not_count_does_not_undo_what_does(path):
    broken = "print(exercises.check_jacobian_rank(nothing))"
    report = grade_notebook(write(path, IMPORT, RANK.format(RIGHT_RANK), broken))
    assert statuses(report) == ["right"]
    report = grade_notebook(write(path, IMPORT, RANK.format(RIGHT_RANK), RANK.format(1)))
    assert statuses(report) == ["wrong"]  # the last word


def test_what_running_code_can_do_is_on_the_page_for_teachers(path):
    """The limit of all this: the cells and the checks share a process."""
    inside = (
        "import sys\nsys.modules['normlab.book.exercises.grading']._agrees = lambda *args: True"
    )
    report = grade_notebook(write(path, SETUP, inside, HAND.format((0, 0, 0), SEED)))
    assert counts(report) == (1, len(ALL))
    said = Path(__file__).parents[2].joinpath("book", "teaching.md").read_text(encoding="utf-8")
    assert "sys.modules" in said
