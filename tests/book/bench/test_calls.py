"""The account of a call: its parts are what they are called, whatever they take."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from normlab.book.bench import Case, calls


def test_each_part_computes_until_the_loops_go() -> None:
    g = torch.Generator().manual_seed(0)
    x, dy = torch.randn(8, 16, generator=g), torch.randn(8, 16, generator=g)
    tensors = [t.requires_grad_() for t in (x, *torch.randn(2, 16, generator=g).unbind())]
    expected = F.layer_norm(x, (16,), *tensors[1:])
    expected = [expected, *torch.autograd.grad(expected, tensors, dy)]
    computing = []
    for name, norm in calls.parts(16).items():
        y = norm(*tensors)
        found = [y, *torch.autograd.grad(y, tensors, dy)]
        assert [t.shape for t in found] == [t.shape for t in expected], name
        computing.append(
            all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True))
        )
    assert computing == [True] * 4 + [False] * 2


def test_each_part_enters_fewer_functions() -> None:
    _, *counts = (part["calls"] for part in calls.measure_calls((8, 16), rounds=5)["parts"])
    assert counts == sorted(set(counts), reverse=True)


def test_a_launch_is_left_out_and_what_is_around_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    grids = []
    get = calls._Launch.__getitem__
    monkeypatch.setattr(
        calls._Launch, "__getitem__", lambda self, grid: grids.append(grid) or get(self, grid)
    )
    found = calls.measure_launch((8, 16), rounds=5)
    assert set(grids) == {(8,), (1,)} or set(grids) == {(8,)}
    assert len(grids) % 2 == 0 and found["calls"] > 20


@pytest.mark.parametrize("norm", ["layer_norm", "batch_norm"])
def test_threads_change_no_bit(norm: str) -> None:
    shape = (600, 1024) if norm == "layer_norm" else (8, 64, 32, 32)
    found = calls.measure_threads(Case(norm, "float32", shape), 2, rounds=5)
    assert found["by"]["numba"]["equal"]
    assert torch.get_num_threads() == 1
