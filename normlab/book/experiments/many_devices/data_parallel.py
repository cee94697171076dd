"""What data parallel training does to the gradients and the statistics of a norm.

Each function runs on every process of a group: `Processes(2).run(compare_gradients, "layer_norm")`.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import batch_norm, mse_loss
from torch.nn.parallel import DistributedDataParallel

from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.parallel import convert_sync_batchnorm, gather_from_group, merge_moments, plain

Gradients = dict[str, Tensor]


class Gaps(NamedTuple):
    """Largest differences of the gradients of data parallel training."""

    whole: float  #: from one process with the whole batch
    accumulated: float  #: from one process that accumulates over the shares
    size: float  #: largest entry of the gradient of the whole batch


def _gradients(model: nn.Module) -> Gradients:
    named = ((n.removeprefix("module."), p.grad) for n, p in model.named_parameters())
    return {n: g.clone() for n, g in named if g is not None}


def _gap(a: Gradients, b: Gradients) -> float:
    return max(float((a[n] - b[n]).abs().max()) for n in b)


def compare_gradients(norm: FeatureNorm, synchronized: bool = False, seed: int = 0) -> Gaps:
    """Gradients of a small network in float64, batch 8, on this group and on one process."""
    size, rank = dist.get_world_size(), dist.get_rank()
    g = torch.Generator().manual_seed(seed)
    x, target = (torch.randn(8, n, generator=g, dtype=torch.float64) for n in (6, 3))
    model = make_mlp((6, 5, 3), norm, seed=seed).double()

    def differentiate(model: nn.Module, shares: list[int]) -> Gradients:
        model.zero_grad()
        for i in shares:
            parts = len(shares) if isinstance(model, nn.Sequential) else 1
            loss = mse_loss(model(x.chunk(size)[i]), target.chunk(size)[i]) / parts
            loss.backward()
        return _gradients(model)

    model.zero_grad()
    mse_loss(model(x), target).backward()
    whole = _gradients(model)
    accumulated = differentiate(model, list(range(size)))
    if synchronized:
        convert_sync_batchnorm(model)
    parallel = differentiate(DistributedDataParallel(model), [rank])
    largest = max(float(v.abs().max()) for v in whole.values())
    return Gaps(_gap(parallel, whole), _gap(parallel, accumulated), largest)


def _keep_buffers(model: nn.Module) -> DistributedDataParallel:
    """Data parallel training in which each process keeps the buffers that its own batches made."""
    # torch 2.13 has the first argument and warns of the second; older ones have only the second.
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters:
        return DistributedDataParallel(model, forward_sync_buffers=False)
    return DistributedDataParallel(model, broadcast_buffers=False)


def follow_running_mean(kind: str, steps: int = 3) -> float:
    """Running mean of this process; the samples of rank r lie around 10 r.

    `kind` is "default", "buffers kept" (not broadcast from rank 0) or "synchronized".
    """
    g = torch.Generator().manual_seed(dist.get_rank())
    model: nn.Module = nn.Sequential(nn.BatchNorm1d(1))
    if kind == "synchronized":
        model = convert_sync_batchnorm(model)
    parallel = _keep_buffers(model) if kind == "buffers kept" else DistributedDataParallel(model)
    for _ in range(steps):
        x = torch.randn(512, 1, generator=g) + 10.0 * dist.get_rank()
        parallel(x).square().mean().backward()
    return float(dict(model.named_buffers())["0.running_mean"])


def passes_before_one_backward(passes: int = 2) -> float:
    """Data parallel forward passes of a batch norm before one backward pass, as in a GAN.

    The first process copies its buffers to the others before each forward pass.

    Returns:
        Length of the gradient by the weight.

    Raises:
        RuntimeError: a copy changed what an earlier pass had kept for its backward pass.
    """
    g = torch.Generator().manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.BatchNorm1d(3)))
    outputs = [model(torch.randn(8, 3, generator=g)) for _ in range(passes)]
    (torch.cat(outputs) - 1).pow(4).mean().backward()
    (gradient,) = (p.grad for n, p in model.named_parameters() if n.endswith("weight"))
    assert gradient is not None
    return float(gradient.norm())


class MergeErrors(NamedTuple):
    """Relative errors of the variance of 4,096 float32 values, half of them on each of two."""

    sums: float  #: from sum and sum of squares
    merged: float  #: from count, mean and squared deviations


def merge_errors(offset: float, seed: int = 0) -> MergeErrors:
    """Two ways to send the variance of values around `offset` in float32."""
    size, rank = dist.get_world_size(), dist.get_rank()
    g = torch.Generator().manual_seed(seed)
    x = (torch.randn(4096, generator=g) + offset).float()
    right = float(x.double().var(correction=0))
    mine = x.chunk(size)[rank]
    sums = torch.stack([mine.sum(), mine.square().sum(), torch.tensor(float(len(mine)))])
    dist.all_reduce(sums)
    naive = float(sums[1] / sums[2] - (sums[0] / sums[2]).square())
    mean = mine.mean()
    sent = torch.stack([mean, (mine - mean).square().sum(), torch.tensor(float(len(mine)))])
    means, squares, counts = gather_from_group(sent).T
    _, _, var = merge_moments(counts, means[:, None], squares[:, None])
    return MergeErrors(naive / right - 1, float(var) / right - 1)


def plain_errors(shares: tuple[int, ...], reduced: bool = False) -> dict[str, float]:
    """Largest differences of the plain functions from one process with the whole batch.

    `shares` are the samples of each process; `reduced` sums the weight gradient over them.
    """
    g = torch.Generator().manual_seed(0)
    x, dy = torch.randn(2, sum(shares), 4, generator=g, dtype=torch.float64)
    weight, bias = torch.rand(2, 4, generator=g, dtype=torch.float64) + 0.5
    whole, weight_leaf = x.clone().requires_grad_(), weight.clone().requires_grad_()
    right = batch_norm(whole, None, None, weight_leaf, bias, True, 0.1, 1e-5)
    dx, dweight = torch.autograd.grad(right, (whole, weight_leaf), dy)
    own = [t.split(shares)[dist.get_rank()] for t in (x, dy, right.detach(), dx)]
    y, cache = plain.sync_batch_norm(own[0], weight, bias, 1e-5)
    found_dx, found_dweight, _ = plain.sync_batch_norm_backward(own[1], cache)
    if reduced:
        dist.all_reduce(found_dweight)
    pairs = {"output": (y, own[2]), "dx": (found_dx, own[3]), "dweight": (found_dweight, dweight)}
    return {name: float((a - b).abs().max()) for name, (a, b) in pairs.items()}
