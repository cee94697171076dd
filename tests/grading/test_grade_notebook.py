"""Grading is right on full, empty, half-right and broken notebooks, and runs nothing else."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from pathlib import Path

import pytest
from sheets import (
    COUNT,
    ENDLESS,
    IMPORT,
    LIMIT,
    RANK,
    RIGHT_COUNT,
    RIGHT_RANK,
    exercise,
    statuses,
    write,
)

from normlab import __version__
from normlab.book.exercises import variants
from normlab.commands import main
from normlab.grading import GradingError, grade_notebook, running
from normlab.grading.pages import PAGES
from normlab.grading.reading import find_calls, find_replaced, read_notebook

pytestmark = pytest.mark.usefixtures("forks", "two_exercises")
TITLE = exercise("ex-rank")


@pytest.mark.usefixtures("fresh")
def test_a_full_notebook_passes(path, capsys):
    write(path, IMPORT, TITLE, RANK.format(RIGHT_RANK), COUNT.format(RIGHT_COUNT))
    assert main(["grade", str(path), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["passed"], values["right"], values["total"]) == (True, 2, 2)
    assert (values["chapter"], values["version"]) == ("layer_norm", __version__)
    assert (values["seed"], values["errors"]) == (None, [])
    assert values["tasks"][0] == {
        "label": "ex-rank",
        "check": "check_jacobian_rank",
        "title": "Rank",
        "cell": 3,
        "status": "right",
        "message": "",
        "seed": None,
    }


def test_an_empty_notebook_has_no_answers_whatever_it_stores(path, capsys):
    write(path, IMPORT, RANK.format(None), COUNT.format(None))
    assert main(["grade", str(path)]) == 1
    out = capsys.readouterr().out
    assert "0 of 2 right" in out
    assert out.count("not answered yet") == 2


def test_a_half_right_notebook_gets_the_sentence(path):
    write(path, IMPORT, RANK.format("features"), COUNT.format(RIGHT_COUNT))
    report = grade_notebook(path)
    assert statuses(report) == ["wrong", "right"]
    assert "adding the same number to all features" in report.tasks[0].message
    assert not report.passed


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("nothing_of_this_name", "NameError"),
        ("(", "SyntaxError"),
        ("1\n\nraise SystemExit('enough')\n\n", "SystemExit: enough"),
    ],
)
def test_a_broken_cell_is_named_and_the_others_are_graded(path, broken, says):
    answer = RANK.format(broken) if broken[0] != "n" else f"{broken}\n{RANK.format(1)}"
    write(path, IMPORT, answer, COUNT.format(RIGHT_COUNT))
    report = grade_notebook(path)
    assert statuses(report) == ["not graded", "right"]
    assert says in report.tasks[0].message
    assert len(report.errors) == 1
    assert report.errors[0].startswith(f"cell 2 raises {says}")
    assert not report.passed


FIRST_LINES = {
    "endless": f"{IMPORT}\n{RANK.format(1)}\n{ENDLESS}",
    "a syntax error": f"{IMPORT}\n{RANK.format('(')}",
    "an error above the import": f"1 / 0\n{IMPORT}\n{RANK.format(1)}",
    "an import of several lines": RANK.format("(")
    + "\nfrom normlab.book.exercises import (\n    variants,\n    layer_norm as exercises,\n)",
    "the end of the process": f"{IMPORT}\n{RANK.format(1)}\n__import__('os')._exit(0)",
}


@pytest.mark.parametrize("first", FIRST_LINES.values(), ids=FIRST_LINES)
def test_a_broken_cell_still_gives_the_others_the_exercises(path, first):
    report = grade_notebook(write(path, TITLE, first, COUNT.format(RIGHT_COUNT)), cell_limit=LIMIT)
    assert statuses(report) == ["not graded", "right"]
    assert report.tasks[0].cell == 2
    assert report.tasks[0].message.startswith("the cell ")
    (error,) = report.errors
    assert error.startswith("cell 2 ")


@pytest.mark.parametrize("broken", ["(", "while True: pass"])
def test_a_broken_cell_still_gives_the_others_its_seed(path, broken):
    call = "print(variants.check_answer(lambda: {}, chapter={!r}, seed=seed))"
    right = [call.format(variants.solve(name, 17), name) for name in ("rms_norm", "warmup")]
    first = f"{broken}\nseed = 17  # mine\n{right[0]}"
    import_ = "from normlab.book.exercises import variants"
    report = grade_notebook(write(path, import_, "seed = 3", first, right[1]), cell_limit=LIMIT)
    assert [(task.status, task.seed) for task in report.tasks if task.cell == 4] == [("right", 17)]


def test_what_others_need_is_left_out_where_it_never_ends(path):
    stuck = f"import builtins\ndef stuck(*_):\n{textwrap.indent(ENDLESS, '    ')}"
    first = f"{IMPORT}\n{stuck}\n{ENDLESS}"
    again = f"{stuck}\nbuiltins.__import__ = stuck"
    write(path, IMPORT, COUNT.format(RIGHT_COUNT), again, first, "1 / 0")
    report = grade_notebook(path, limit=20 * LIMIT, cell_limit=LIMIT)
    assert report.errors == [
        f"cell 4 does not end within {LIMIT} s",
        "cell 5 raises ZeroDivisionError: division by zero",
    ]


def test_a_cell_that_runs_is_run_as_it_stands(path):
    """Its lines are not drawn to its top."""
    source = "from normlab.book.exercises import variants\nseed = 17"
    call = "print(variants.check_answer(lambda: (1, 2), chapter='rms_norm', seed=seed))\nseed = 3"
    (task,) = grade_notebook(write(path, source, call)).tasks
    assert task.seed == 17


def test_a_syntax_error_is_the_reason_and_its_cell_is_named(path):
    first = f"{IMPORT}\n\n\n{RANK.format('(features')}"
    report = grade_notebook(write(path, "x = 1", TITLE, first))
    task = report.tasks[0]
    assert task.cell == 3
    assert task.message == "the cell raises SyntaxError: '(' was never closed (<cell 3>, line 5)"


def test_an_answer_that_raises_is_wrong(path):
    report = grade_notebook(write(path, IMPORT, RANK.format("1 / 0")))
    assert statuses(report) == ["wrong"]
    assert "ZeroDivisionError" in report.tasks[0].message


def test_a_failing_cell_without_a_task_fails_the_notebook(path):
    report = grade_notebook(write(path, IMPORT, RANK.format(RIGHT_RANK), "1 / 0"))
    assert statuses(report) == ["right"]
    assert report.errors == ["cell 3 raises ZeroDivisionError: division by zero"]
    assert not report.passed


NO_NOTEBOOKS = [
    ("no json", "{", "not JSON"),
    ("a list", "[]", "no notebook of format 4"),
    ("an old format", '{"worksheets": []}', "no notebook of format 4"),
    ("no cells", '{"cells": []}', "no cell calls a check"),
    ("no checks", '{"cells": [{"cell_type": "code", "source": "x = 1"}]}', "no cell calls a check"),
]


@pytest.mark.parametrize(
    ("text", "says"), [pytest.param(t, s, id=name) for name, t, s in NO_NOTEBOOKS]
)
def test_what_is_no_notebook_with_exercises_is_an_error(path, capsys, text, says):
    path.write_text(text)
    assert main(["grade", str(path)]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""
    assert main(["grade", str(path), "--json"]) == 2
    assert says in json.loads(capsys.readouterr().out)["error"]


def test_no_such_file(path):
    with pytest.raises(GradingError, match="No such file"):
        grade_notebook(path)


ENDLESS_RANK = RANK.format(1).replace("    return 1", textwrap.indent(ENDLESS, "    "))


def test_a_cell_that_does_not_end_is_named_and_the_others_are_graded(path):
    write(path, IMPORT, COUNT.format(RIGHT_COUNT), ENDLESS_RANK)
    report = grade_notebook(path, cell_limit=LIMIT)
    assert statuses(report) == ["not graded", "right"]
    assert report.tasks[0].message == f"the cell does not end within {LIMIT} s"
    assert report.errors == [f"cell 3 does not end within {LIMIT} s"]
    assert not report.passed


def test_of_nine_cells_whose_third_does_not_end_eight_are_graded(path):
    call = "print(variants.check_answer(lambda: {}, chapter={!r}, seed=1))"
    cells = [call.format(variants.solve(chapter, 1), chapter) for chapter in variants.CHAPTERS[:9]]
    cells[0] = f"from normlab.book.exercises import variants\n{cells[0]}"
    cells[2] = f"{ENDLESS}\n{cells[2]}"
    report = grade_notebook(write(path, *cells), cell_limit=LIMIT)
    assert sorted(statuses(report)) == ["not graded", *["right"] * 8]
    assert [task.cell for task in report.tasks if task.status != "right"] == [3]


def test_the_limit_of_all_names_the_cell_and_keeps_what_was_graded(path):
    write(path, IMPORT, COUNT.format(RIGHT_COUNT), ENDLESS, RANK.format(RIGHT_RANK))
    report = grade_notebook(path, limit=LIMIT)
    assert statuses(report) == ["not graded", "right"]
    assert report.errors == [f"the time limit of {LIMIT} s was over in cell 3"]
    assert "not reached: the time limit" in report.tasks[0].message


@pytest.mark.parametrize("name", ["limit", "cell_limit"])
def test_a_limit_is_positive(path, name):
    with pytest.raises(ValueError, match=f"^{name}: "):
        grade_notebook(path, **{name: 0})


def test_the_command_has_both_limits(path, capsys):
    write(path, IMPORT, COUNT.format(RIGHT_COUNT), "import time\ntime.sleep(600)")
    assert main(["grade", str(path), "--cell-limit", f"{LIMIT}"]) == 1
    assert f"cell 3 does not end within {LIMIT} s" in capsys.readouterr().out
    assert main(["grade", str(path), "--limit", f"{LIMIT}"]) == 1
    assert f"the time limit of {LIMIT} s was over in cell 3" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["grade", "--help"])
    assert "(default: 60)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "how"),
    [
        ("import os\nos._exit(0)", "ends the process"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "ends with status -11"),
    ],
)
def test_a_cell_that_ends_the_process_is_named_and_the_others_are_graded(path, source, how):
    report = grade_notebook(write(path, IMPORT, RANK.format(RIGHT_RANK), source, COUNT.format(1)))
    assert statuses(report) == ["right", "wrong"]
    assert report.errors == [f"cell 3 {how}"]


@pytest.mark.parametrize(
    ("slow", "says"),
    [(ENDLESS, f"does not end within {LIMIT} s"), ("1 / 0", "raises ZeroDivisionError")],
)
def test_a_failing_cell_of_the_chapter_is_told_from_those_of_the_exercises(path, slow, says):
    write(path, IMPORT, slow, TITLE, RANK.format(RIGHT_RANK))
    report = grade_notebook(path, cell_limit=LIMIT)
    assert statuses(report) == ["right"]
    (error,) = report.errors
    assert error.startswith(f"cell 2 (above the exercises) {says}")


# Nothing runs that the author did not write.


@pytest.mark.usefixtures("fresh")
def test_nothing_beside_the_notebook_is_imported(path):
    (path.parent / "math.py").write_text("raise RuntimeError('mine')")
    (path.parent / "sitecustomize.py").write_text("open('ran', 'w').close()")
    (path.parent / "torch.py").write_text("open('ran', 'w').close()")
    report = grade_notebook(write(path, IMPORT, COUNT.format(RIGHT_COUNT)))
    assert statuses(report) == ["right"]
    assert not (path.parent / "ran").exists()


def test_no_kernel_of_the_metadata_is_started(path, monkeypatch):
    specs = path.parent / "kernels" / "trap"
    specs.mkdir(parents=True)
    ran = path.parent / "ran"
    spec = {"argv": [sys.executable, "-c", f"open({str(ran)!r}, 'w')"], "display_name": "trap"}
    (specs / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(path.parent))
    write(path, IMPORT, COUNT.format(RIGHT_COUNT), kernelspec={"name": "trap"})
    assert statuses(grade_notebook(path)) == ["right"]
    assert not ran.exists()


def test_lines_for_the_shell_are_left_out_and_named(path):
    magic = "%matplotlib inline\n" + COUNT.format(RIGHT_COUNT)
    percent = "!touch ran\nexercises.check_count_means?\nx = 1"
    report = grade_notebook(
        write(path, IMPORT, magic, percent, "x = '''\n%d'''", "%%bash\ntouch ran")
    )
    assert statuses(report) == ["right"]
    assert report.errors == []
    assert report.notes == [
        "cell 2: not executed: %matplotlib inline",
        "cell 3: not executed: !touch ran",
        "cell 3: not executed: exercises.check_count_means?",
        "cell 5: not executed: %%bash",
    ]
    assert not (path.parent / "ran").exists()


@pytest.mark.parametrize("magic", ["%%time", "%%capture out"])
def test_a_cell_below_a_magic_for_python_is_graded(path, magic):
    report = grade_notebook(write(path, IMPORT, f"{magic}\n{COUNT.format(RIGHT_COUNT)}"))
    assert statuses(report) == ["right"]
    assert report.notes == [f"cell 2: not executed: {magic}"]


def test_what_jupyter_displays_does_not_fail(path):
    report = grade_notebook(write(path, IMPORT, f"display(1)\n{COUNT.format(RIGHT_COUNT)}"))
    assert report.errors == []


def test_what_an_answer_prints_does_not_matter(path):
    loud = RANK.format(RIGHT_RANK).replace("return", "print('D =', features, end=' ')\n    return")
    louder = COUNT.format(RIGHT_COUNT) + "\nprint(10**6 * 'x', 'wrong: →')"
    assert statuses(grade_notebook(write(path, IMPORT, loud, louder))) == ["right", "right"]


@pytest.mark.usefixtures("fresh")  # how characters are written is settled at the start
def test_a_long_message_becomes_one_line(path):
    text = "'a\\nright\\n' + chr(0xD800) + 1000 * ' x'"
    long = RANK.format(1).replace("return 1", f"raise ValueError({text})")
    report = grade_notebook(write(path, IMPORT, long, f"raise ValueError({text})"))
    assert statuses(report) == ["wrong"]
    assert "\n" not in report.tasks[0].message
    assert len(str(report).encode()) < 2000


def test_an_exercise_without_a_check_is_left_to_the_reader(path):
    own, other = exercise("ex-own", "A wing"), exercise("ex-of-a-class", "Ours")
    report = grade_notebook(write(path, own, IMPORT, TITLE, RANK.format(RIGHT_RANK), other))
    assert report.notes == [
        "exercise A wing: has no check; read the answer",
        "exercise Ours: none of the book's; read the answer",
    ]
    assert report.chapter == "layer_norm, checks_further"


def test_the_seed_of_a_variant_is_reported(path):
    source = "from normlab.book.exercises import variants\nseed = 17"
    call = "print(variants.check_answer(lambda: (1, 2), chapter='rms_norm', seed=seed))"
    report = grade_notebook(write(path, source, call))
    assert [(t.title, t.status, t.seed) for t in report.tasks] == [
        ("variant of rms_norm", "wrong", 17)
    ]
    assert "check_answer (variant of rms_norm), seed 17: wrong: " in str(report)
    assert report.chapter == "rms_norm"


def test_a_file_with_a_byte_order_mark_is_a_notebook(path):
    write(path, IMPORT, COUNT.format(RIGHT_COUNT))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert statuses(grade_notebook(path)) == ["right"]


def test_a_file_in_another_encoding_is_named(path):
    path.write_bytes('{"cells": "café"}'.encode("latin-1"))
    with pytest.raises(GradingError, match="UTF-8"):
        grade_notebook(path)


# Writes one letter more for as long as it lives.
BEAT = "import time\nwhile True:\n    open('beats', 'a').write('x')\n    time.sleep(0.05)"


def has_ended(beats: Path) -> bool:
    """Whether what had written once writes no more."""
    assert beats.stat().st_size > 0
    time.sleep(0.5)  # what was killed may be dying
    size = beats.stat().st_size
    time.sleep(1)
    return beats.stat().st_size == size


def test_what_a_cell_started_ends_with_the_limit(path):
    start = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {BEAT!r}])"
    report = grade_notebook(write(path, IMPORT, start, COUNT.format("None")), limit=LIMIT)
    assert report.errors == [f"the time limit of {LIMIT} s was over in cell 2"]
    assert has_ended(path.parent / "beats")


def run_fresh(program: str, folder: Path, limit: float) -> str:
    command = [sys.executable, "-S", "-c", program]
    limits = running.Limits(time.monotonic() + limit, limit)
    return running._run(command, folder, dict(os.environ), folder / "results", limits)


@pytest.mark.usefixtures("fresh")
def test_how_a_fresh_process_ends_is_told(tmp_path):
    assert run_fresh("", tmp_path, 60) == "ends the process"
    assert run_fresh("raise SystemExit(3)", tmp_path, 60) == "ends with status 3"
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert run_fresh(crash, tmp_path, 60) == "ends with status -11"


@pytest.mark.usefixtures("fresh")
def test_what_a_fresh_process_started_ends_with_the_limit(tmp_path):
    start = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-S', '-c', {BEAT!r}])"
    )
    assert run_fresh(f"{start}; time.sleep(60)", tmp_path, 3) == "does not end"
    assert has_ended(tmp_path / "beats")


def test_cells_keep_their_own_annotations(path):
    source = "def f(x: 1 + 1): pass\nassert f.__annotations__ == {'x': 2}"
    report = grade_notebook(write(path, IMPORT, source, COUNT.format(RIGHT_COUNT)))
    assert report.errors == []


def test_a_check_imported_by_name_counts(path):
    source = "from normlab.book.exercises.layer_norm import check_jacobian_rank as check_it"
    report = grade_notebook(write(path, source, "print(check_it(lambda features, eps: None))"))
    assert statuses(report) == ["not answered yet"]


BOOK = Path(__file__).resolve().parents[2] / "book"
CHAPTERS = [p for p in sorted(BOOK.glob("*.ipynb")) if "{exercise" in p.read_text("utf-8")]


def test_every_page_with_exercises_is_known():
    assert {chapter.stem for chapter in CHAPTERS} == set(PAGES)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda p: p.stem)
def test_every_exercise_of_the_book_can_be_graded(chapter):
    """Below each exercise of the table stands its check, which is called once, with its verdict."""
    stored = json.loads(chapter.read_text("utf-8"))["cells"]
    cells, texts = read_notebook(chapter)
    calls = [call for call in find_calls(cells) if ".check_" in call.name]
    assert find_replaced(cells) == {}
    below = {
        text.label: ", ".join(call.name for call in calls if call.number == text.number + 1)
        for text in texts
    }
    assert below == PAGES[chapter.stem]
    assert len(calls) == len({call.name for call in calls})
    for call in calls:
        printed = "".join("".join(o.get("text", "")) for o in stored[call.number - 1]["outputs"])
        assert printed.splitlines()[-1] == "not answered yet", f"cell {call.number}"
