"""Rows whose bits depend on their neighbors."""

from __future__ import annotations

from pathlib import Path

import torch

from normlab.book.experiments.many_devices.batch_invariance import (
    batch_invariance,
    count_changed,
    make_rows,
    measure_all,
)
from normlab.book.experiments.tables import where

RECORD = Path(__file__).resolve().parents[3] / "book" / "_data" / "batch_invariance.jsonl"


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
