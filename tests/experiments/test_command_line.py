"""`python -m normlab.experiments`: settings from the command line, JSON out, clear errors."""

import dataclasses
import json

import pytest

from normlab.experiments.__main__ import find_experiments, main


def test_lists_every_experiment_with_its_question(capsys):
    assert main([]) == 0
    listed = capsys.readouterr().out
    for name, module in find_experiments().items():
        assert name in listed
        assert (module.__doc__ or "").strip().partition("\n")[0] in listed


@pytest.mark.parametrize("name", find_experiments())
def test_every_config_is_frozen_and_becomes_options(name, capsys):
    config = find_experiments()[name].Config
    assert dataclasses.fields(config())  # all fields have defaults
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config(), dataclasses.fields(config)[0].name, 0)
    with pytest.raises(SystemExit) as done:
        main([name, "--help"])
    assert done.value.code == 0
    shown = capsys.readouterr().out
    for field in dataclasses.fields(config):
        assert "--" + field.name.replace("_", "-") in shown


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


def test_unknown_experiment_names_the_nearest(capsys):
    assert main(["batch_size"]) == 2
    assert "batch_sizes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["batch_noise", "--draws", "many"], "--draws"),
        (["batch_noise", "--no-such-setting", "1"], "--no-such-setting"),
        (["batch_sizes", "--norms", "bacth_norm"], "norms"),
    ],
)
def test_bad_settings_are_named(arguments, word, capsys):
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert done.value.code == 2
    assert word in capsys.readouterr().err
