"""Data parallel training of norms; a group of one process makes the copies of a larger one."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch import nn

from normlab.book.experiments.many_devices import data_parallel
from normlab.parallel import Processes

pinned = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."),
    reason=f"what torch 2.13 hides from autograd, this is {torch.__version__}",
)


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_buffers_are_kept_without_a_warning(group):
    """Warnings are errors here, and the argument has another name since torch 2.13."""
    kept = data_parallel._keep_buffers(nn.Sequential(nn.BatchNorm1d(1)))
    assert kept.broadcast_buffers is False
    assert nn.parallel.DistributedDataParallel(nn.BatchNorm1d(1)).broadcast_buffers is True


def make_older(model, broadcast_buffers=True):
    return f"broadcast_buffers={broadcast_buffers}"


def make_newer(model, broadcast_buffers=None, forward_sync_buffers=None):
    assert broadcast_buffers is None, "deprecated"
    return f"forward_sync_buffers={forward_sync_buffers}"


@pytest.mark.parametrize(
    ("make", "said"),
    [(make_older, "broadcast_buffers=False"), (make_newer, "forward_sync_buffers=False")],
)
def test_the_argument_is_the_one_that_torch_has(make, said, monkeypatch):
    monkeypatch.setattr(data_parallel, "DistributedDataParallel", make)
    assert data_parallel._keep_buffers(nn.BatchNorm1d(1)) == said


@pinned
def test_two_passes_before_one_backward():
    with Processes(2, time_limit=60, patience=20) as processes:
        lengths = processes.run(data_parallel.passes_before_one_backward)
    assert lengths[0] == lengths[1] > 0.1


@pinned
def test_a_copy_in_sight_of_autograd_raises(group, monkeypatch):
    monkeypatch.setattr(
        torch.autograd, "_unsafe_preserve_version_counter", lambda _: contextlib.nullcontext()
    )
    assert data_parallel.passes_before_one_backward(1) > 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        data_parallel.passes_before_one_backward(2)
