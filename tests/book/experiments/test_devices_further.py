"""Costs at scale against sums by hand, and rows whose bits depend on their neighbors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from normlab.book.experiments.many_devices import communication_cost, cost_at_scale
from normlab.book.experiments.many_devices.batch_invariance import (
    batch_invariance,
    count_changed,
    make_rows,
    measure_all,
)
from normlab.book.experiments.many_devices.cost_at_scale import Cluster
from normlab.book.experiments.tables import where

RECORD = Path(__file__).resolve().parents[3] / "book" / "_data" / "batch_invariance.jsonl"
CHANNELS = communication_cost.resnet_channels()


def test_a_tree_by_hand():
    cost = cost_at_scale.tree_all_reduce(1000, Cluster(64))
    assert cost.latency == pytest.approx((6.8 + 2 * (7 * 0.6 + 3 * 5.0)) * 1e-6)
    assert (cost.bytes, cost.transfer) == (2000, pytest.approx(2000 / 50e9))


def test_a_ring_by_hand():
    cost = cost_at_scale.ring_all_gather(1000, Cluster(16))
    assert cost.latency == pytest.approx((6.6 + 14 * 0.6 + 1 * 2.7) * 1e-6)
    assert (cost.bytes, cost.transfer) == (15_000, pytest.approx(15_000 / 50e9))


def test_a_tree_grows_with_the_logarithm_and_a_ring_with_the_number():
    reduced, gathered = (
        [f(CHANNELS, Cluster(n)) for n in (1024, 2048, 4096)]
        for f in (cost_at_scale.reduced_batch_norms, cost_at_scale.gathered_batch_norms)
    )
    first, second = (b.latency - a.latency for a, b in zip(reduced, reduced[1:], strict=False))
    assert first == pytest.approx(second)
    assert gathered[2].latency == pytest.approx(2 * gathered[1].latency, rel=0.01)
    assert gathered[2].bytes == pytest.approx(2 * gathered[1].bytes, rel=0.001)
    assert len({c.bytes for c in reduced}) == 1


def test_counts_are_those_of_the_chapter():
    cluster, link = Cluster(8), communication_cost.Link(1.0, 1.0)
    plain = communication_cost.divided_features_cost(65, 8192, link)
    found = cost_at_scale.divided_rms_norms(65, 8192, cluster)
    assert (found.calls, found.bytes) == (plain.calls, 2 * plain.bytes)  # up the tree and down
    both = cost_at_scale.add(
        [f(CHANNELS, cluster) for f in (cost_at_scale.gathered_batch_norms,) * 2]
    )
    assert both.calls == communication_cost.sync_batch_norm_cost(CHANNELS, link).calls


@pytest.mark.parametrize("devices", [0, 4, 12, 24, -8])
def test_devices_fill_machines(devices):
    with pytest.raises(ValueError, match=f"devices: got {devices}; expected 8 times a power"):
        cost_at_scale.tree_all_reduce(4, Cluster(devices))


def test_this_processor_gives_what_was_recorded():
    recorded = where(batch_invariance.read(RECORD), capability="default")
    capability = torch.backends.cpu.get_cpu_capability().lower()
    found = measure_all(rows=65, sizes=(1, 7))
    assert len(found) == recorded.backend.isin(["torch", "composition", "numba"]).sum()
    for o in found:
        if o["backend"] != "torch" or o["dtype"] == "float32" or capability == "default":
            assert (o["alone"], o["changed"]) == (0, [0, 0]), o
    if capability in {"avx2", "avx512"}:
        changed = [o["alone"] for o in found if o["function"] == "written_rms_norm"]
        assert changed[0] == 0 < min(changed[1:])


def test_a_function_that_reads_its_neighbors_is_seen():
    x = make_rows(9)
    assert count_changed(lambda x: x - x.mean(0), x, 3) == 3
    assert count_changed(lambda x: 2 * x, x, 3) == 0


def test_a_run_asks_for_the_instructions():
    table = batch_invariance.sweep(capability=["default"], rows=5, sizes=[1])
    assert set(table.used) == {"default"}
