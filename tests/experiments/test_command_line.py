"""`python -m normlab.experiments`: settings from the command line, JSON out, clear errors."""

import ast
import dataclasses
import importlib
import json
import typing
from pathlib import Path
from typing import Annotated, Literal

import pytest

from normlab.experiments.__main__ import find_experiments, main

EXPERIMENTS = find_experiments()


def config_of(name):
    return importlib.import_module(EXPERIMENTS[name]).Config


def test_lists_every_experiment_with_its_question(capsys):
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert len(EXPERIMENTS) > 70
    for name, module in EXPERIMENTS.items():
        question = importlib.import_module(module).__doc__.strip().partition("\n")[0]
        assert f"  {name} " in listed
        assert question in listed


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_config_is_frozen_and_becomes_options(name, capsys):
    config = config_of(name)
    assert dataclasses.fields(config())  # all fields have defaults
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config(), dataclasses.fields(config)[0].name, 0)
    with pytest.raises(SystemExit) as done:
        main([name, "--help"])
    assert done.value.code == 0
    shown = capsys.readouterr().out
    for field in dataclasses.fields(config):
        assert "--" + field.name.replace("_", "-") in shown


def status_and_error(arguments, capsys):
    try:
        status = main(arguments)
    except SystemExit as done:
        status = done.code
    words = capsys.readouterr().err
    assert "Traceback" not in words
    return status, " ".join(words.replace("│", " ").split())


def leaf(hint):
    """The type of one item of a setting."""
    while typing.get_origin(hint) is tuple:
        hint = typing.get_args(hint)[0]
    return hint


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_bad_settings_of_every_experiment_are_named(name, capsys):
    hints = typing.get_type_hints(config_of(name), include_extras=True)
    bad = {}  # a setting of each kind, and the words that are wrong there
    for field, hint in hints.items():
        item = leaf(hint)
        if typing.get_origin(item) is Literal:
            bad["choice"] = field, ["no_such_choice"]
        elif typing.get_origin(item) is Annotated:
            bad["domain"] = field, ["-7"]
        if typing.get_origin(hint) is tuple:
            bad["empty"] = field, []
        if item in (int, float) or typing.get_origin(item) is Annotated:
            bad["type"] = field, ["many"]
    assert "type" in bad
    for field, words in [("no_such_setting", ["1"]), *bad.values()]:
        status, error = status_and_error([name, "--" + field.replace("_", "-"), *words], capsys)
        assert status == 2
        assert field in error.replace("-", "_")


def test_settings_reach_the_run_and_the_record(tmp_path):
    path = tmp_path / "noise.json"
    arguments = ["batch_noise", "--batch-sizes", "4", "8", "--seeds", "3", "--draws", "20"]
    assert main([*arguments, "--record", str(path)]) == 0
    record = json.loads(path.read_text())
    assert record["config"]["batch_sizes"] == [4, 8]
    assert record["config"]["seeds"] == [3]
    assert {o["batch_size"] for o in record["result"]["outcomes"]} == {4, 8}
    assert {"python", "torch"} <= set(record["versions"])
    assert record["command"].startswith("python -m normlab.experiments batch_noise --batch-sizes 4")


def test_a_run_without_a_sweep_is_recorded_as_well(tmp_path, capsys):
    path = tmp_path / "constant.json"
    assert main(["constant_statistics", "--steps", "3", "--record", str(path)]) == 0
    assert json.loads(path.read_text())["config"]["steps"] == 3
    assert main(["constant_statistics", "--steps", "3"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["result"] == json.loads(path.read_text())["result"]


def test_unknown_experiment_names_the_nearest(capsys):
    assert status_and_error(["batch_size"], capsys) == (
        2,
        "NAME: there is no experiment 'batch_size'. Did you mean batch_sizes? "
        "`python -m normlab.experiments` lists all",
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--draws", "many"], "--draws"),
        (["--no-such-setting", "1"], "--no-such-setting"),
        (["--jobs", "0"], "jobs: got 0; expected 1 or more"),
        (["--backend", "nope"], "Invalid backend: nope"),
        (["--record", "no/such/folder/noise.json"], "record: got no/such/folder/noise.json"),
        (["--seeds"], "seeds: got (); expected at least one value"),
    ],
)
def test_bad_settings_are_named(arguments, words, capsys):
    status, error = status_and_error(["batch_noise", *arguments], capsys)
    assert status == 2
    assert words in error


def test_files_have_no_command_line_of_their_own():
    for name, module in EXPERIMENTS.items():
        source = Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8")
        tests = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
        assert not tests, name
