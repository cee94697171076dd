"""What DTensor makes of a norm for each way to divide its input; runs on every process."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module
from torch.nn import functional as F


class Row(NamedTuple):
    """One norm and one way to divide its input."""

    output: str  #: placement of the output, or the kind of error
    collectives: int  #: called forward
    error: float | None  #: largest difference from one process, or None


NORMS: dict[str, Any] = {
    "layer_norm": lambda x, w: F.layer_norm(x, (6,), w, None, 1e-5),
    "rms_norm": lambda x, w: F.rms_norm(x, (6,), w, 1e-5),
    "rms_norm in words": lambda x, w: x * torch.rsqrt(x.square().mean(-1, True) + 1e-5) * w,
}


def place(norm: str, axis: int | None) -> Row:
    """A norm over the last of three axes of sizes 2, 4 and 6, weight replicated.

    `axis` is divided; None is for an input that every process has.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    g = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 4, 6, generator=g), torch.rand(6, generator=g)
    right = NORMS[norm](x, weight)
    divided = distribute_tensor(x, mesh, [Replicate() if axis is None else Shard(axis)])
    weight = distribute_tensor(weight, mesh, [Replicate()])
    with CommDebugMode() as mode, warnings.catch_warnings(action="ignore"):
        try:
            y = NORMS[norm](divided, weight)
        except RuntimeError as error:
            return Row(type(error).__name__, mode.get_total_counts(), None)
    (placement,) = y.placements
    count = mode.get_total_counts()
    return Row(_name(placement), count, float((y.full_tensor() - right).abs().max()))


def _name(placement: Any) -> str:
    names = {Replicate: "on all", Partial: "partial sums"}
    if isinstance(placement, Shard):
        return f"axis {placement.dim} divided"
    return names[type(placement)]


def running_mean_of_divided_channels(divided_buffers: bool) -> float:
    """Largest running mean after a batch around 5, with channels divided.

    With `divided_buffers` the buffers are divided like the channels, rather than replicated.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    g = torch.Generator().manual_seed(0)
    x = torch.randn(8, 4, generator=g) + 5
    buffers = [Shard(0) if divided_buffers else Replicate()]
    mean = distribute_tensor(torch.zeros(4), mesh, buffers)
    var = distribute_tensor(torch.ones(4), mesh, buffers)
    with warnings.catch_warnings(action="ignore"):
        F.batch_norm(distribute_tensor(x, mesh, [Shard(1)]), mean, var, training=True)
        found: Tensor = mean.full_tensor()
    return float(found.max())


class Sequence(NamedTuple):
    """Torch's `SequenceParallel` around a layer norm."""

    collectives: int  #: called forward and backward
    local: float  #: largest error of the gradient that one process holds
    full: float  #: the same of `full_tensor()`


def sequence_parallel() -> Sequence:
    """A layer norm of 8 tokens, half of them on each process."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    g = torch.Generator().manual_seed(0)
    x, dy = torch.randn(2, 2, 8, 6, generator=g)
    alone = nn.LayerNorm(6)
    alone(x).backward(dy)
    right = alone.weight.grad
    norm = parallelize_module(nn.LayerNorm(6), mesh, SequenceParallel())
    with CommDebugMode() as mode, warnings.catch_warnings(action="ignore"):
        y = norm(distribute_tensor(x, mesh, [Shard(1)]))
        y.backward(distribute_tensor(dy, mesh, [Shard(1)]))
        count = mode.get_total_counts()
        grad = norm.weight.grad
    assert isinstance(grad, DTensor) and right is not None
    local, full = grad.to_local(), grad.full_tensor()
    return Sequence(count, float((local - right).abs().max()), float((full - right).abs().max()))
