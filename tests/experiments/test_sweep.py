"""A sweep: the same numbers however it runs, a record that survives a kill, plain selections."""

import dataclasses
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
from types import SimpleNamespace

import pytest

from normlab.experiments import recording
from normlab.experiments.__main__ import find_experiments, parse
from normlab.experiments.batch_norm import batch_noise, learning_rates
from normlab.experiments.results import Result
from normlab.experiments.settings import (
    Count,
    Several,
    check_at_most,
    check_divides,
    check_one_for_each,
    check_settings,
)
from normlab.experiments.former_sweep import Sweep, grid

pytestmark = pytest.mark.starts("normlab")

ROOT = Path(__file__).resolve().parents[2]
NO_EXPERIMENTS = {"zoo"}  # made by tests/zoo, in an environment with other libraries
RECORDS = [
    path
    for path in sorted((ROOT / "book" / "_data").glob("*.json"))
    if "command" in json.loads(path.read_text(encoding="utf-8")) and path.stem not in NO_EXPERIMENTS
]
SMALL = learning_rates.Config(norms=("none", "batch_norm"), lrs=(0.1, 1.0), seeds=(0,), steps=3)

# Each run of a point leaves a line in a file.
SLOW = """
import os, time
from dataclasses import dataclass
from normlab.experiments.former_sweep import Sweep

@dataclass(frozen=True)
class Config:
    log: str = ""
    seeds: tuple[int, ...] = tuple(range(20))

def run_one(config, seed):
    with open(config.log, "ab", buffering=0) as log:
        log.write(b"%d\\n" % seed)
    time.sleep(0.1)
    return {"third": seed / 3, "curve": (1, seed)}

run = Sweep(run_one, seed="seeds")
"""


@pytest.fixture
def slow(tmp_path, monkeypatch):
    (tmp_path / "slow_experiment.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    yield importlib.import_module("slow_experiment")
    del sys.modules["slow_experiment"]


def test_the_last_axis_of_a_grid_is_the_fastest():
    points = learning_rates.run.points(learning_rates.Config())
    assert len(points) == 4 * 7 * 5
    assert points == [
        {"norm": norm, "lr": lr, "seed": seed}
        for norm in learning_rates.Config.norms
        for lr in learning_rates.Config.lrs
        for seed in range(5)
    ]
    assert grid(a=(1, 2), b=("x",)) == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]


def test_outcomes_hold_the_point_and_what_run_one_measured():
    result = learning_rates.run(SMALL)
    assert [(o.norm, o.lr, o.seed) for o in result.outcomes] == [
        (n, lr, 0) for n in SMALL.norms for lr in SMALL.lrs
    ]
    live = learning_rates.run_one(SMALL, "batch_norm", 1.0, 0)
    assert vars(result.outcomes[-1]).items() >= live.items()


def test_axes_have_to_be_the_parameters():
    with pytest.raises(TypeError, match="axes: got norm; run_one takes norm, lr, seed"):
        Sweep(learning_rates.run_one, norm="norms")


def test_two_jobs_give_the_same_bits():
    assert learning_rates.run(SMALL, jobs=2) == learning_rates.run(SMALL)


def test_two_dask_workers_give_the_same_bits():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        assert len(client.scheduler_info()["workers"]) == 2
        spread = learning_rates.run(SMALL, jobs=2, backend="dask")
    assert spread == learning_rates.run(SMALL)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_sweep_resumes(slow, tmp_path, jobs):
    record, log = tmp_path / "record.json", tmp_path / "log"
    config = slow.Config(log=str(log))
    program = (
        "import slow_experiment as s\n"
        f"s.run(s.Config(log={str(log)!r}), jobs={jobs}, record={str(record)!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    deadline = time.monotonic() + 60
    finished = 0
    while finished < 4 and process.poll() is None and time.monotonic() < deadline:
        if record.exists():  # at every moment a whole file
            finished = json.loads(record.read_text()).get("finished_points", 20)
        time.sleep(0.002)
    time.sleep(0.25)  # in the middle of later points, not behind a write
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    stored = json.loads(record.read_text())
    assert 4 <= stored["finished_points"] < 20
    with pytest.raises(ValueError, match="unfinished, with"):
        recording.read_record(record)

    resumed = slow.run(config, record=record)
    runs = Counter(map(int, log.read_text().split()))
    assert set(runs) == set(config.seeds)
    assert all(runs[o["seed"]] == 1 for o in stored["result"]["outcomes"])
    assert sum(runs.values()) - len(runs) <= jobs
    assert "finished_points" not in json.loads(record.read_text())
    assert slow.run(config, record=record) == resumed == slow.run.read(record)
    assert runs == Counter(map(int, log.read_text().split()))  # a finished file is only read
    assert slow.run(config) == resumed


def test_a_failed_write_leaves_the_old_record(tmp_path, monkeypatch):
    path = tmp_path / "noise.json"
    config = batch_noise.Config(seeds=(0,), batch_sizes=(2,), draws=2)
    batch_noise.run(config, record=path)
    before = path.read_text()
    record = json.loads(before)
    with pytest.raises(ValueError, match="returns None for a number that is not finite"):
        recording.write_record(path, record | {"result": {"outcomes": [{"noise": math.nan}]}})
    assert path.read_text() == before

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recording.write_record(path, record | {"result": {"outcomes": []}})
    assert path.read_text() == before


def test_a_record_of_another_run_is_refused(tmp_path):
    path = tmp_path / "noise.json"
    config = batch_noise.Config(seeds=(0,), batch_sizes=(2,), draws=2)
    batch_noise.run(config, record=path)
    other = batch_noise.Config(seeds=(1,), batch_sizes=(2,), draws=2)
    with pytest.raises(ValueError, match=r"record: .*noise.json is of another run \(seeds\)"):
        batch_noise.run(other, record=path)
    with pytest.raises(ValueError, match="is of another run"):
        recording.read_finished(path, "batch_sizes", config, points=2)
    record = json.loads(path.read_text())
    record["versions"]["torch"] = "1.0"
    recording.write_record(path, record | {"finished_points": 1})
    with pytest.raises(ValueError, match="begun with torch 1.0"):
        batch_noise.run(config, record=path)
    path.write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        batch_noise.run(config, record=path)
    with pytest.raises(ValueError, match="there is no such folder"):
        batch_noise.run(config, record=tmp_path / "nowhere" / "noise.json")


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
        assert len(module.run.read(path).outcomes) == len(outcomes)
        assert module.run(config, record=path) == module.run.read(path)


@pytest.fixture
def result():
    losses = {("a", 1): (0.3, 0.1), ("a", 2): (0.2, None), ("b", 1): (0.5, 0.7), ("b", 2): (0, 0)}
    return Result(
        tuple(
            SimpleNamespace(norm=norm, lr=lr, seed=seed, loss=loss)
            for (norm, lr), values in losses.items()
            for seed, loss in enumerate(values)
        )
    )


def test_selections(result):
    assert result.values("loss", norm="b", lr=1) == [0.5, 0.7]
    assert result.median("loss", norm="a", lr=1) == pytest.approx(0.2)
    assert result.median("loss", missing=math.inf, norm="a", lr=2) == math.inf
    assert result.spread("loss", norm="b") == (0, 0.25, 0.7)
    assert result.best("loss", "lr", norm="a") == (1, pytest.approx(0.2))
    assert result.best("loss", "lr", norm="b") == (2, 0)
    assert result.best("loss", "lr", largest=True, norm="b") == (1, pytest.approx(0.6))
    assert result.at_best("loss", "lr", norm="b") == result.values("loss", norm="b", lr=2)
    assert result.at_best("loss", "lr", norm="b") != result.values("loss", norm="b", lr=1)
    assert result.at_best("loss", "lr", missing=-5.0, norm="a") == [0.2, -5.0]
    most = result.at_best("loss", "lr", largest=True, norm="b")
    assert most == result.values("loss", norm="b", lr=1)
    assert [o.seed for o in result.of(lr=2, norm="b")] == [0, 1]
    with pytest.raises(ValueError, match="no outcome has {'norm': 'c'}"):
        result.values("loss", norm="c")


def test_curves_are_read_at_an_index():
    found = [SimpleNamespace(seed=s, curve=(s, 10 + s)) for s in (0, 1)]
    assert Result(tuple(found)).at(-1, "curve") == [10, 11]
    assert Result(tuple(found)).at(0, "curve", seed=1) == [1]


def test_tables_refuse_gaps_and_doubles(result):
    groups, along = ("norm", ["b"]), ("lr", [2, 1])
    assert result.table("loss", groups=groups, along=along) == {"b": [[0, 0.5], [0, 0.7]]}
    with pytest.raises(ValueError, match="two for"):
        Result(result.outcomes * 2).table("loss", groups=groups, along=along)
    with pytest.raises(ValueError, match="2 are missing"):
        result.table("loss", groups=groups, along=("lr", [1, 3]))
    row = result.table("loss", groups=("norm", ["a"]), along=along, seed=1)["a"][0]
    assert math.isnan(row[0])
    assert row[1] == 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": -1}, "steps: got -1; expected 1 or more"),
        ({"steps": 2.0}, "steps: got 2.0; expected 1 or more"),
        ({"seeds": ()}, r"seeds: got \(\); expected at least one value"),
        ({"seeds": "01"}, "seeds: got '01'; expected several values"),
        ({"lrs": (0.1, 0.0)}, "lrs: got 0.0; expected a positive number"),
        ({"lrs": (math.nan,)}, "lrs: got nan; expected a positive number"),
        ({"norms": ("no_norm",)}, "norms: got 'no_norm'; expected one of 'none', 'batch_norm'"),
        ({"activation": "gelu"}, "activation: got 'gelu'; expected one of 'relu'"),
        ({"trained_above": 1.1}, "trained_above: got 1.1; expected a number from 0 to 1"),
    ],
)
def test_settings_out_of_their_domain_are_named(settings, message):
    config = learning_rates.Config(**settings)
    with pytest.raises(ValueError, match=message):
        check_settings(config)
    with pytest.raises(ValueError, match=message):
        learning_rates.run(config)
    check_settings(learning_rates.Config(lrs=(1,), seeds=range(2)))


@dataclasses.dataclass(frozen=True)
class Watched:
    steps: Count = 10
    every: Count = 10
    depth: Several = 2


def test_a_setting_may_depend_on_another():
    check_settings(Watched())
    check_at_most(Watched(), "every", "steps")
    with pytest.raises(ValueError, match="^every: got 11; expected at most 10, the steps"):
        check_at_most(Watched(every=11), "every", "steps")
    with pytest.raises(ValueError, match="^depth: got 1; expected 2 or more"):
        check_settings(Watched(depth=1))


@pytest.mark.parametrize(("every", "divides"), [(1, True), (5, True), (3, False), (0, False)])
def test_a_setting_may_divide_another(every, divides):
    if divides:
        check_divides(Watched(every=every), "every", "steps")
    else:
        with pytest.raises(
            ValueError, match=f"^every: got {every}; expected a divisor of steps 10"
        ):
            check_divides(Watched(every=every), "every", "steps")


@dataclasses.dataclass(frozen=True)
class Paired:
    optimizers: tuple[str, ...] = ("sgd", "adam")
    lrs: tuple[float, ...] = (0.1, 0.2)


def test_a_list_may_belong_to_another():
    check_one_for_each(Paired(), "lrs", of="optimizers")
    for lrs in ((0.1,), (0.1, 0.2, 0.3)):
        expected = f"^lrs: got {len(lrs)} for 2 optimizers; expected one for each"
        with pytest.raises(ValueError, match=expected):
            check_one_for_each(Paired(lrs=lrs), "lrs", of="optimizers")


def test_jobs_and_backends_are_checked():
    with pytest.raises(ValueError, match="jobs: got 0"):
        learning_rates.run(SMALL, jobs=0)
    with pytest.raises(ValueError, match=r"backend: nope"):
        learning_rates.run(SMALL, backend="nope")
