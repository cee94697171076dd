"""Grading is right on full, empty, half-right and broken notebooks, and runs nothing else."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import warm

from normlab.commands import main
from normlab.grading import GradingError, grade_notebook, notebook
from normlab.grading.reading import find_graders, find_tasks, read_notebook

IMPORT = "from normlab.exercises import layer_norm as exercises"
RANK = "def rank(features, eps):\n    return {}\n\n\nprint(exercises.check_jacobian_rank(rank))"
COUNT = "def count(shape, n):\n    return {}\n\n\nprint(exercises.check_count_means(count))"
RIGHT_RANK = "features - 1 - (eps == 0)"
RIGHT_COUNT = "__import__('math').prod(shape[: len(shape) - len(n)])"
LIMIT = 3  # seconds: many times what a fork needs to reach an endless cell
TITLE = "```{exercise} Rank\n:label: ex\n\nWhat is it?\n```"


def write(path: Path, *sources: str, **metadata: Any) -> Path:
    cells = [
        {
            "cell_type": "markdown" if source.startswith("```") else "code",
            "source": source.splitlines(keepends=True),
            "outputs": [{"output_type": "stream", "name": "stdout", "text": "right\n"}],
        }
        for source in sources
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4}))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.ipynb"


@pytest.fixture(autouse=True)
def forks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no fresh process, where a test does not ask for one."""
    if "fresh" not in request.fixturenames and sys.platform == "linux":
        warm.warm_up()
        monkeypatch.setattr(notebook, "_start", warm.start)


@pytest.fixture
def fresh() -> None:
    """The process is one of its own from the start, as a reader's."""


def statuses(report: Any) -> list[str]:
    return [task.status for task in report.tasks]


@pytest.mark.usefixtures("fresh")
def test_a_full_notebook_passes(path, capsys):
    write(path, IMPORT, TITLE, RANK.format(RIGHT_RANK), COUNT.format(RIGHT_COUNT))
    assert main(["grade", str(path), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["passed"], values["right"], values["total"]) == (True, 2, 2)
    assert values["errors"] == []
    assert values["tasks"][0] == {
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


def test_the_limit_names_the_cell_and_keeps_what_was_graded(path):
    endless = RANK.format(1).replace("return", "while True:\n        pass\n    return")
    write(path, IMPORT, COUNT.format(RIGHT_COUNT), endless, COUNT.format(RIGHT_COUNT))
    report = grade_notebook(path, limit=LIMIT)
    assert statuses(report) == ["right", "not graded", "not graded"]
    assert report.errors == [f"the time limit of {LIMIT} s was over in cell 3"]
    with pytest.raises(ValueError, match="limit"):
        grade_notebook(path, limit=0)


def test_a_cell_that_ends_the_process_is_named(path):
    write(path, IMPORT, "import os\nos._exit(0)", RANK.format(RIGHT_RANK))
    report = grade_notebook(path)
    assert statuses(report) == ["not graded"]
    assert report.errors == ["the process ended itself in cell 2"]


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
    assert report.passed


@pytest.mark.parametrize(
    "trick",
    [
        "exercises.check_jacobian_rank = lambda answer: 'right'",
        "setattr(exercises, 'check_jacobian_rank', lambda answer: 'right')",
        "class exercises:\n    check_jacobian_rank = staticmethod(lambda answer: 'right')",
    ],
)
def test_a_check_that_was_replaced_does_not_count(path, trick):
    report = grade_notebook(write(path, IMPORT, trick, RANK.format(1)))
    assert statuses(report) == ["not graded"]
    assert "another meaning" in report.tasks[0].message


@pytest.mark.parametrize(
    "trick",
    [
        "print('right')",
        "show = print\nprint = lambda *_: show('right')",
    ],
)
def test_what_is_printed_is_no_verdict(path, trick):
    silent = RANK.format(1).replace("print(", "(")
    assert statuses(grade_notebook(write(path, IMPORT, trick, silent))) == ["wrong"]


def test_a_check_in_disguise_gives_no_verdict(path):
    trick = "vars(exercises)['check_jacobian_rank'] = lambda answer: 'right'"
    report = grade_notebook(write(path, IMPORT, trick, RANK.format(1)))
    assert statuses(report) == ["not graded"]
    assert "1 check, 0 verdicts" in report.tasks[0].message


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


def test_an_exercise_without_its_check_is_not_right(path):
    gone = "def rank(features, eps):\n    return 1\nprint('right')"
    other = TITLE.replace("Rank", "Means")
    report = grade_notebook(write(path, TITLE, IMPORT, gone, other, COUNT.format(RIGHT_COUNT)))
    assert [(t.title, t.status) for t in report.tasks] == [
        ("Rank", "not graded"),
        ("Means", "right"),
    ]
    assert "no cell below it calls a check" in report.tasks[0].message
    assert not report.passed


def test_an_open_exercise_without_a_check_is_left_to_the_reader(path):
    words = TITLE.replace("Rank", "Rank (open)")
    report = grade_notebook(write(path, words, IMPORT, TITLE, RANK.format(RIGHT_RANK)))
    assert report.passed
    assert report.notes == ["exercise 'Rank (open)': has no check; read the answer"]


def test_the_seed_of_a_variant_is_reported(path):
    source = "from normlab.exercises import variants\nseed = 17"
    call = "print(variants.check_constants(lambda: (1, 2, 3), seed=seed))"
    report = grade_notebook(write(path, source, call))
    assert [(t.status, t.seed) for t in report.tasks] == [("wrong", 17)]
    assert "check_constants, seed 17: wrong: " in str(report)


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
    return notebook._run([sys.executable, "-S", "-c", program], folder, dict(os.environ), limit)


@pytest.mark.usefixtures("fresh")
def test_how_a_fresh_process_ends_is_told(tmp_path):
    assert run_fresh("", tmp_path, 60) == ""
    assert run_fresh("raise SystemExit(3)", tmp_path, 60) == "the process ended with status 3"
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert run_fresh(crash, tmp_path, 60) == "the process ended with status -11"


@pytest.mark.usefixtures("fresh")
def test_what_a_fresh_process_started_ends_with_the_limit(tmp_path):
    start = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-S', '-c', {BEAT!r}])"
    )
    assert run_fresh(f"{start}; time.sleep(60)", tmp_path, 3) == "the time limit of 3 s was over"
    assert has_ended(tmp_path / "beats")


def test_cells_keep_their_own_annotations(path):
    source = "def f(x: 1 + 1): pass\nassert f.__annotations__ == {'x': 2}"
    report = grade_notebook(write(path, IMPORT, source, COUNT.format(RIGHT_COUNT)))
    assert report.errors == []


def test_a_check_imported_by_name_counts(path):
    source = "from normlab.exercises.layer_norm import check_jacobian_rank as check_it"
    report = grade_notebook(write(path, source, "print(check_it(lambda features, eps: None))"))
    assert statuses(report) == ["not answered yet"]


BOOK = Path(__file__).resolve().parents[2] / "book"
CHAPTERS = [p for p in sorted(BOOK.rglob("*.ipynb")) if "{exercise" in p.read_text("utf-8")]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda p: p.stem)
def test_every_exercise_of_the_book_can_be_graded(chapter):
    """Each cell that calls a check prints its verdict, and calls no other."""
    stored = json.loads(chapter.read_text("utf-8"))["cells"]
    cells, _ = read_notebook(chapter)
    graders, replaced = find_graders(cells)
    tasks = {c.number: find_tasks(c, graders) for c in cells}
    tasks = {number: checks for number, checks in tasks.items() if checks}
    assert len(tasks) >= 2
    assert replaced == set()
    for number, checks in tasks.items():
        printed = "".join("".join(o.get("text", "")) for o in stored[number - 1]["outputs"])
        verdicts = [line for line in printed.splitlines() if line == "not answered yet"]
        assert len(verdicts) == len(checks), f"cell {number}"
