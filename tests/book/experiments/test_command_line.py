"""`python -m normlab.experiments`: options from the signature, a record, clear errors."""

import importlib
import json
import re
import typing
from pathlib import Path
from typing import Literal

import pytest

from normlab.book import experiments
from normlab.book.experiments.__main__ import find_experiments, load, main

EXPERIMENTS = find_experiments()


def test_lists_every_experiment_with_its_question(capsys):
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert {"learning_rates", "wrong_norms"} <= set(EXPERIMENTS)
    for name, module in EXPERIMENTS.items():
        question = importlib.import_module(module).__doc__.strip().partition("\n")[0]
        assert f"  {name} " in listed
        assert question in listed


def test_every_experiment_is_run_or_read_on_a_page():
    book = Path(__file__).parents[3] / "book"
    pages = (json.loads(path.read_text(encoding="utf-8")) for path in book.glob("*.ipynb"))
    cells = (cell for page in pages for cell in page["cells"] if cell["cell_type"] == "code")
    code = "\n".join("".join(cell["source"]) for cell in cells)
    assert set(EXPERIMENTS) <= set(re.findall(r"\w+", code))


def status_and_error(arguments, capsys):
    try:
        status = main(arguments)
    except SystemExit as done:
        status = done.code
    words = capsys.readouterr().err
    assert "Traceback" not in words
    return status, " ".join(words.replace("│", " ").split())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_wrong_settings_of_every_experiment_are_all_named(name, capsys):
    run = load(name)
    hints = typing.get_type_hints(run, include_extras=True)
    wrong = {}  # what is out of its domain, and what is no number at all
    for argument in (*run.grid, *run.settings):
        kinds = typing.get_args(hints[argument])
        if typing.get_origin(hints[argument]) is Literal:
            wrong[argument] = "no such choice"
        elif kinds and kinds[0] in (int, float):
            wrong[argument] = -7
        elif argument in run.grid and hints[argument] is str:
            wrong[argument] = "no such name"
    changes = {n: [value] if n in run.grid else value for n, value in wrong.items()}
    with pytest.raises(ValueError, match="no_such_setting") as error:
        run.sweep(**changes, no_such_setting=1)
    wrong = {n: value for n, value in wrong.items() if value != "no such name"}
    named = {line.partition(":")[0] for line in str(error.value).splitlines()}
    assert named == {*wrong, "no_such_setting"}

    numbers = [n for n, value in wrong.items() if value == -7]
    words = [word for n in numbers for word in ("--" + n.replace("_", "-"), "-7")]
    if numbers:  # without a wrong one the experiment would run
        status, said = status_and_error([name, *words], capsys)
        assert status == 2
        assert all(f"{n}: got -7" in said for n in numbers)
    status, said = status_and_error([name, "--no-such-setting", "1"], capsys)
    assert status == 2
    assert "no-such-setting" in said


def test_settings_reach_the_run_and_the_record(tmp_path, capsys):
    path = tmp_path / "rates.jsonl"
    arguments = ["learning_rates", "--lr", "0.1", "0.3", "--seed", "3", "--steps", "2"]
    assert main([*arguments, "--record", str(path), "--jobs", "1"]) == 0
    header, *rows = map(json.loads, path.read_text().splitlines())
    assert header["settings"] == {"steps": 2}
    assert {row["lr"] for row in rows} == {0.1, 0.3}
    assert {"python", "torch"} <= set(header["versions"])
    assert header["processor"]
    assert header["command"].startswith("python -m normlab.experiments learning_rates --lr 0.1 0.3")
    assert main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["norm", "lr", "seed", "eval_accuracy"]
    assert len(printed) == 1 + len(rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "many"], "--steps"),
        (["--norm", "no_norm"], "--norm"),
        (["--record", "no/such/folder/r.jsonl"], "record: got no/such/folder/r.jsonl"),
        (["--seed"], "seed: got no value"),
        (["--jobs", "0", "--steps", "1"], "n_jobs == 0"),
    ],
)
def test_bad_options_are_named(arguments, words, capsys):
    status, error = status_and_error(["learning_rates", *arguments], capsys)
    assert status == 2
    assert words in error


def test_an_unknown_experiment_names_the_nearest(capsys):
    assert status_and_error(["learning_rate"], capsys) == (
        2,
        "NAME: there is no experiment 'learning_rate'. Did you mean learning_rates? "
        "`python -m normlab.experiments` lists all",
    )


def test_an_experiment_is_called_like_its_file_and_nothing_else_is():
    names = []
    for path in Path(experiments.__file__).parent.rglob("*.py"):
        found = re.findall(r"^@experiment\((?:.|\n)*?^def (\w+)", path.read_text("utf-8"), re.M)
        assert found in ([], [path.stem]), path
        names += found
    assert sorted(names) == sorted(EXPERIMENTS)
