"""A sweep: the same numbers however it runs, and a record that survives a kill."""

import importlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import joblib
import pytest
import tyro
from pandas.testing import assert_frame_equal
from pydantic import PositiveInt

from normlab.book.experiments.__main__ import command, load
from normlab.book.experiments.batch_norm.learning_rates import learning_rates
from normlab.book.experiments.sweep import experiment

ROOT = Path(__file__).resolve().parents[3]
RECORDS = sorted((ROOT / "book" / "_data").glob("*.jsonl"))
SMALL = {"norm": ["none", "batch_norm"], "lr": [0.1, 1.0], "seed": [0], "steps": 3}

# Each run of a point leaves a line in a file.
SLOW = '''
import time
from normlab.book.experiments.sweep import experiment

@experiment(seed=range(20))
def slow(seed: int, *, log: str, factor: int = 1):
    """Wait, and say so."""
    with open(log, "ab", buffering=0) as file:
        file.write(b"%d\\n" % seed)
    time.sleep(0.1)
    return {"third": factor * seed / 3, "curve": (1, seed), "missing": float("nan")}
'''


@pytest.fixture
def slow(tmp_path, monkeypatch):
    source = SLOW.replace("log: str", f"log: str = {str(tmp_path / 'log')!r}")
    (tmp_path / "slow_experiment.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    yield importlib.import_module("slow_experiment").slow
    del sys.modules["slow_experiment"]


def test_a_table_has_a_row_a_run_in_the_order_of_the_grid():
    table = learning_rates.sweep(**SMALL)
    assert list(table) == ["norm", "lr", "seed", "eval_accuracy"]
    points = [(n, lr, 0) for n in SMALL["norm"] for lr in SMALL["lr"]]
    assert list(table[["norm", "lr", "seed"]].itertuples(index=False, name=None)) == points
    live = learning_rates("batch_norm", 1.0, seed=0, steps=3)
    assert live["eval_accuracy"] == table.eval_accuracy.iloc[-1]
    assert learning_rates.grid["seed"] == (0, 1, 2, 3, 4)


def test_axes_have_to_be_the_parameters():
    with pytest.raises(TypeError, match=r"grid: got \['norm'\]; f takes \['lr', 'norm'\]"):

        @experiment(norm=["a"])
        def f(norm: str, lr: float):
            return {}


def test_a_grid_may_have_holes_and_a_point_several_rows(tmp_path):
    @experiment(a=(1, 2, 3), b=(1, 2, 3), skip=lambda b, a: a != b)
    def f(a: int, b: int):
        return [{"row": 0, "sum": a + b}, {"row": 1, "sum": a - b}]

    table = f.sweep(record=tmp_path / "f.jsonl")
    assert table["sum"].tolist() == [2, 0, 4, 0, 6, 0]
    assert_frame_equal(f.read(tmp_path / "f.jsonl"), table)
    with pytest.raises(ValueError, match="grid: f skips all of"):
        f.sweep(a=[1], b=[2])


@pytest.mark.parametrize("jobs", [1, 2])
def test_jobs_do_not_change_a_bit(jobs):
    assert_frame_equal(learning_rates.sweep(**SMALL, jobs=jobs), learning_rates.sweep(**SMALL))


def test_a_dask_worker_gives_the_same_bits():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        assert len(client.scheduler_info()["workers"]) == 1
        with joblib.parallel_config(backend="dask"):
            spread = learning_rates.sweep(**SMALL)
    assert_frame_equal(spread, learning_rates.sweep(**SMALL))


def test_a_killed_sweep_loses_what_was_running_and_nothing_else(slow, tmp_path):
    record, log = tmp_path / "record.jsonl", tmp_path / "log"
    program = f"import slow_experiment as s; s.slow.sweep(jobs=2, record={str(record)!r})"
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if record.exists() and len(record.read_text().splitlines()) > 4:
            break
        time.sleep(0.002)
    time.sleep(0.25)  # in the middle of later points, not behind a write
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    stored = [json.loads(line) for line in record.read_text().splitlines()[1:]]
    assert 4 <= len(stored) < 20
    with pytest.warns(UserWarning, match=f"has {len(stored)} of 20 points; `python -m"):
        assert slow.read(record).seed.tolist() == [row["seed"] for row in stored]
    with record.open("a") as file:
        file.write('{"seed": 19, "thi')  # torn, as by a machine that went down

    resumed = slow.sweep(record=record)
    runs = Counter(map(int, log.read_text().split()))
    assert all(runs[row["seed"]] == 1 for row in stored)
    assert set(runs) == set(range(20))
    # what was running, and at most as much whose line was being written
    assert sum(runs.values()) - len(runs) <= 2 * 2
    assert_frame_equal(slow.read(record), resumed)
    assert resumed.seed.tolist() == list(range(20))
    assert runs == Counter(map(int, log.read_text().split()))
    before = record.read_text()
    assert_frame_equal(slow.sweep(record=record), resumed)  # a finished file is only read
    assert record.read_text() == before
    assert runs == Counter(map(int, log.read_text().split()))
    assert_frame_equal(slow.sweep(), resumed)


def test_what_is_not_finite_is_null_and_a_curve_is_a_list(slow, tmp_path):
    table = slow.sweep(seed=[1], record=tmp_path / "r.jsonl")
    assert table.curve.tolist() == [[1, 1]]
    assert table.missing.isna().all()
    assert '"missing": null' in (tmp_path / "r.jsonl").read_text()


def test_more_values_of_an_axis_extend_a_record(slow, tmp_path):
    record, log = tmp_path / "r.jsonl", tmp_path / "log"
    slow.sweep(seed=[3, 5], record=record)
    table = slow.sweep(seed=[1, 3, 4, 5], record=record)
    assert table.seed.tolist() == [1, 3, 4, 5]
    assert Counter(log.read_text().split()) == Counter(["3", "5", "1", "4"])
    assert_frame_equal(slow.read(record), table)
    assert "--seed 1 3 4 5" in json.loads(record.read_text().splitlines()[0])["command"]
    assert slow.sweep(seed=[4], record=record).seed.tolist() == [4]
    assert len(slow.read(record)) == 4


def test_of_processes_of_a_launcher_the_first_one_writes(slow, tmp_path, monkeypatch):
    record, log = tmp_path / "r.jsonl", tmp_path / "log"
    slow.sweep(seed=[3], record=record)
    before = record.read_bytes()
    monkeypatch.setenv("RANK", "1")
    assert slow.sweep(seed=[3, 5], record=record).seed.tolist() == [3, 5]
    assert log.read_text().split() == ["3", "5"]  # what stands in the record is not run again
    assert record.read_bytes() == before


def test_a_record_of_another_run_is_refused_by_name(slow, tmp_path):
    record = tmp_path / "r.jsonl"
    slow.sweep(seed=[1], record=record)
    whole = record.read_text()
    for changes, words in [
        ({"factor": 2}, "factor: 1 there, 2 asked for"),
        ({"factor": 2, "log": "x"}, "(?s)factor: 1 there.*log: .* there"),
    ]:
        with pytest.raises(ValueError, match=words):
            slow.sweep(seed=[1], record=record, **changes)
    with pytest.raises(ValueError, match="is of slow, not of learning_rates"):
        learning_rates.sweep(**SMALL, record=record)
    header, row = map(json.loads, whole.splitlines())
    for key, value, words in [
        ("source", "0", "source: the body of slow has changed"),
        ("versions", {"torch": "1.0"}, "torch: 1.0 there"),
        ("source", None, "source: the body of slow has changed"),
    ]:
        other = json.dumps(header | {key: value}) + "\n" + json.dumps(row) + "\n"
        record.write_text(other)
        with pytest.raises(ValueError, match=words):
            slow.sweep(seed=[1, 2], record=record)
        assert record.read_text() == other
    assert slow.sweep(seed=[1], record=record).seed.tolist() == [1]  # nothing is run
    for text in ("{", "[]\n", ""):
        record.write_text(text)
        with pytest.raises(ValueError, match="is no record of an experiment"):
            slow.sweep(seed=[1], record=record)
    with pytest.raises(ValueError, match="there is no such folder"):
        slow.sweep(record=tmp_path / "nowhere" / "r.jsonl")


def test_the_digest_is_of_the_body(tmp_path, slow):
    digest = slow._digest()
    for old, new, same in [
        ("range(20)", "range(30)", True),
        ("Wait, and say so.", "Wait.", True),
        ("sleep(0.1)", "sleep(0.2)", False),
    ]:
        (tmp_path / "other_experiment.py").write_text(
            (tmp_path / "slow_experiment.py").read_text().replace(old, new)
        )
        importlib.invalidate_caches()
        sys.modules.pop("other_experiment", None)
        assert (importlib.import_module("other_experiment").slow._digest() == digest) == same


def test_settings_out_of_their_domains_are_all_named_before_anything_runs():
    wrong = {"norm": ["no_norm"], "lr": [-1, math.nan, "many"], "seed": 3, "steps": 0, "size": 1}
    with pytest.raises(ValueError, match="steps: got 0") as error:
        learning_rates.sweep(**wrong)
    lines = str(error.value).splitlines()
    assert sorted(line.partition(":")[0] for line in lines) == sorted(
        ["norm", "lr", "lr", "lr", "seed", "steps", "size"]
    )
    assert "seed: got 3; expected several values, as [3]" in lines
    with pytest.raises(ValueError, match="seed: got no value"):
        learning_rates.sweep(seed=[])
    with pytest.raises(ValueError, match=r"(?s)norm: got 'x'.*lr: got 0"):
        learning_rates("x", 0, seed=0)
    with pytest.raises(TypeError, match="missing a required argument: 'seed'"):
        learning_rates("none", 0.1)


def test_conditions_between_settings_come_before_anything_runs():
    def divides(width, heads):
        if width % heads:
            raise ValueError(f"heads: got {heads}; expected a divisor of width {width}")

    @experiment(width=(4, 6), condition=divides)
    def f(width: PositiveInt, *, heads: PositiveInt = 2):
        raise AssertionError("it ran")

    for call in (lambda: f.sweep(heads=4), lambda: f(6, heads=4)):
        with pytest.raises(ValueError, match="heads: got 4; expected a divisor of width 6"):
            call()


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_command_of_a_record_gives_its_points_and_settings(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    header = json.loads(lines[0])
    python, m, package, name, *arguments = shlex.split(header["command"])
    assert (python, m, package) == ("python", "-m", "normlab.experiments")
    run = load(name)
    changes, _, record = tyro.cli(command(run), args=arguments)
    assert record == Path("book/_data") / path.name
    table = run.sweep(record=path, **changes)  # settings fit, and no point is missing
    assert_frame_equal(table, run.read(path))
    assert header["points"] == len(lines) - 1
