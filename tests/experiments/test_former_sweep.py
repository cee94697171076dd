"""Records of the experiments that are still modules with a configuration and a run."""

import importlib
import json
import shlex
from pathlib import Path

import pytest

from normlab.experiments import recording
from normlab.experiments.former_main import find_experiments, main, parse
from normlab.experiments.former_sweep import Sweep

DATA = Path(__file__).resolve().parents[2] / "book" / "_data"
NO_EXPERIMENTS = {"zoo"}  # made by tests/zoo, in an environment with other libraries
RECORDS = [
    path
    for path in sorted(DATA.glob("*.json"))
    if "command" in json.loads(path.read_text(encoding="utf-8")) and path.stem not in NO_EXPERIMENTS
]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_command_of_a_record_gives_its_settings(path):
    record = recording.read_record(path)
    python, m, package, name, *arguments = shlex.split(record["command"])
    assert (python, m, package) == ("python", "-m", "normlab.experiments")
    module = importlib.import_module(find_experiments()[name])
    config, how = parse(module, arguments)
    assert how.record == Path("book/_data") / path.name
    outcomes = record["result"]["outcomes"]
    finished = recording.read_finished(path, name, config, points=len(outcomes))
    assert finished == (len(outcomes), outcomes)
    if isinstance(module.run, Sweep):
        assert module.run(config, record=path) == module.run.read(path)


def test_a_bad_setting_is_named(capsys):
    assert main(["signal_at_init", "--width", "0"]) == 2
    assert "width: got 0; expected 1 or more" in capsys.readouterr().err
