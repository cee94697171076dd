"""Training on several processes: equal to one where nothing is shared, and after a kill."""

from __future__ import annotations

import pytest
from pandas.testing import assert_frame_equal

from normlab.book.experiments.many_devices import full_sharding
from normlab.book.experiments.many_devices.data_parallel_training import data_parallel_training
from normlab.book.experiments.many_devices.step_cost import (
    WIDTHS,
    added_by_synchronization,
    measure_all,
    step_cost,
)
from normlab.book.experiments.tables import where
from normlab.parallel import Processes


@pytest.fixture(scope="module")
def table():
    return data_parallel_training.sweep(lr=[0.02], seed=[0], steps=10)


@pytest.mark.parametrize("network", ["convnet", "transformer"])
@pytest.mark.parametrize("norm", ["sync_batch_norm", "group_norm", "layer_norm"])
def test_two_processes_train_as_one(table, network, norm):
    one, two = where(table, network=network, norm=norm).itertuples()
    assert (one.processes, two.processes) == (1, 2)
    assert two.curve == pytest.approx(one.curve, rel=2e-3)
    assert two.test_loss == pytest.approx(one.test_loss, rel=2e-3)


@pytest.mark.parametrize("network", ["convnet", "transformer"])
def test_batch_norm_does_not(table, network):
    one, two = where(table, network=network, norm="batch_norm").itertuples()
    assert two.curve[1:] != pytest.approx(one.curve[1:], rel=2e-3)


def test_shares_are_equal():
    with pytest.raises(ValueError, match="processes: got 3; expected a divisor of 4"):
        data_parallel_training.sweep(processes=[1, 3])


def test_a_launcher_says_how_many_processes_there_are(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="processes: got 1; expected 2, as the launcher says"):
        data_parallel_training.sweep(network=["convnet"])


def test_a_run_continues_from_its_checkpoint(tmp_path, capsys):
    kept = {"every": 10, "checkpoints": str(tmp_path)}
    # a rate does not continue from the checkpoint of another
    points = {"network": ["convnet"], "norm": ["batch_norm"], "processes": [1], "seed": [0]}
    points |= {"lr": [0.02, 0.06]}
    data_parallel_training.sweep(**points, steps=10, **kept)
    continued = data_parallel_training.sweep(**points, steps=20, **kept)
    assert capsys.readouterr().err.count("continues at step 10") == 2
    assert continued.lr.tolist() == [0.02, 0.06]
    assert_frame_equal(continued, data_parallel_training.sweep(**points, steps=20))
    with pytest.raises(ValueError, match=r"of a run with another batch_size; name another folder"):
        data_parallel_training.sweep(**points, steps=20, batch_size=8, **kept)


@pytest.fixture(scope="module")
def two():
    with Processes(2, time_limit=120) as processes:
        yield processes


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_a_fully_sharded_norm_is_rounded_unless_it_is_a_unit_of_its_own(two, norm):
    rounded, whole = (
        two.run(full_sharding.train_in_bfloat16, norm, own_unit) for own_unit in (False, True)
    )
    assert {(c.input, c.weight, c.gradient) for c in rounded} == {
        ("bfloat16", "bfloat16", "float32")
    }
    assert {(c.input, c.weight, c.gradient) for c in whole} == {("float32", "float32", "float32")}
    assert all(1e-4 < c.rounding < 2**-8 for c in rounded)
    assert all(c.rounding == 0 for c in whole)


def test_a_fully_sharded_batch_norm(two):
    assert "expected scalar type BFloat16 but found Float" in (
        two.run(full_sharding.train_in_bfloat16, "batch_norm", False)[0].error
    )
    first, second = two.run(full_sharding.train_in_bfloat16, "batch_norm", True)
    assert first.weight == "float32"
    assert abs(first.mean - second.mean) > 1e-3  # the statistics stay those of a process


def test_what_synchronization_adds_is_what_the_model_counts():
    table = step_cost.sweep(processes=[1, 2], steps=10)
    added = added_by_synchronization(table, 2)
    numbers = sum((2 * channels + 1) + 2 * channels for channels in WIDTHS)
    assert (added.calls, added.bytes) == (2 * len(WIDTHS), 8 * numbers)
    assert added.modeled > 0
    assert added_by_synchronization(table, 1)[:2] == (0, 0)


def test_processes_without_a_core_of_their_own_are_not_timed(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 0.5)
    assert {measures["milliseconds"] for measures in measure_all()} == {None}
