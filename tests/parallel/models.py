"""Models with norms of several kinds, importable on other processes."""

from __future__ import annotations

import copy
import functools
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from normlab import doctor, layers, parallel
from normlab.parallel.division import scalar


class WithActivation(nn.BatchNorm1d):
    """Adds to the batch norm, and calls it."""

    def __init__(self, num_features: int, slope: float = 0.1) -> None:
        super().__init__(num_features)
        self.slope = slope

    def forward(self, input):
        return F.leaky_relu(super().forward(input), self.slope)


class WithItsOwn(nn.BatchNorm2d):
    """Computes the batch norm by itself, as layers with a fused activation do."""

    def forward(self, input):
        y = F.batch_norm(input, self.running_mean, self.running_var, training=self.training)
        return y.relu()


class PastTheParent(nn.BatchNorm1d):
    """Names the class whose forward it calls, past all that stands between."""

    def forward(self, input):
        return nn.BatchNorm1d.forward(self, input) * 2


def converted_step(x, dy, shards, kind):
    """Output, gradients and buffers of a small converted model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), kind(3)).double()
    if shards is not None:
        rank = dist.get_rank()
        x, dy = x.split(shards)[rank], dy.split(shards)[rank]
        model = parallel.convert_sync_batchnorm(model)
    y = model(x)
    scalar(y, dy).backward()
    return y.detach(), model[0].weight.grad, model[1].running_var


def converted_groups():
    """A layer keeps its own group; the others get the given one."""
    own, given = dist.new_group([0, 1]), dist.new_group([0, 1])
    model = nn.Sequential(
        nn.SyncBatchNorm(3, process_group=own), nn.BatchNorm1d(3), nn.InstanceNorm1d(3)
    )
    first = parallel.convert_sync_batchnorm(model, given)
    again = parallel.convert_sync_batchnorm(first)
    groups = [again[0].process_group is own, again[1].process_group is given]
    return groups, [type(m).__name__ for m in again]


class Block(nn.Module):
    """Norms on tokens of one process, around a layer of which it has everything."""

    def __init__(self, norm, width=6):
        super().__init__()
        torch.manual_seed(1)
        self.norm_1, self.linear, self.norm_2 = norm(width), nn.Linear(width, width), norm(width)

    def forward(self, x):
        return self.norm_2(self.linear(self.norm_1(x)))


NORMS = {
    "torch": nn.LayerNorm,
    "ours": layers.LayerNorm,
    "rms": nn.RMSNorm,
    "sums by itself": functools.partial(parallel.ParallelQKNorm, eps=None),
}


def gradients(x, dy, shards, norm, reduce):
    """Norm gradients of this process's tokens, and which of them are parts."""
    model = Block(NORMS[norm]).double()
    if shards is not None:
        x, dy = (t.split(shards)[dist.get_rank()] for t in (x, dy))
    scalar(model(x), dy).backward()
    if shards is None:
        return (), (), {n: p.grad for n, p in model.named_parameters()}
    partial = parallel.find_partial_gradients(model)
    reduced = parallel.reduce_norm_gradients(model) if reduce else ()
    left = parallel.find_partial_gradients(model)
    return (
        partial,
        reduced,
        left,
        {n: p.grad for n, p in model.named_parameters() if "norm" in n},
    )


def reduce_twice(x):
    model = Block(nn.LayerNorm)
    model(x).square().sum().backward()
    parallel.reduce_norm_gradients(model)
    try:
        parallel.reduce_norm_gradients(model)
    except RuntimeError as error:
        message = str(error)
    model.zero_grad(set_to_none=False)
    model(x).square().sum().backward()
    return message, len(parallel.reduce_norm_gradients(model))


def unused_on_one(x):
    """One process has no token for the norm, and one parameter is used by nobody."""
    model = nn.ModuleList([nn.LayerNorm(3), nn.LayerNorm(3)])
    if dist.get_rank() == 0:
        model[0](x).square().sum().backward()
    partial = parallel.find_partial_gradients(model)
    reduced = parallel.reduce_norm_gradients(model)
    return partial, reduced, model[0].weight.grad, model[1].weight.grad


def closed_branch(x, scale, fresh=True):
    """What is told of a norm behind a branch whose last weight is `scale` times the usual one."""
    model = Block(nn.LayerNorm)
    with torch.no_grad():
        model.linear.weight *= scale
        if not fresh:
            model.norm_1.weight += torch.arange(6)
            model.norm_1.bias += torch.arange(6)
    x = x[dist.get_rank() :: 2]
    (x + model.linear(model.norm_1(x))).square().sum().backward()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        partial = parallel.find_partial_gradients(model)
    return partial, [str(w.message) for w in caught]


def rounded_otherwise(x):
    """What is told of whole gradients that differ in the last digit."""
    model = Block(nn.LayerNorm)
    model(x).square().sum().backward()
    model.norm_1.weight.grad *= 1 + 2e-7 * dist.get_rank()
    return parallel.find_partial_gradients(model)


def copied_groups():
    own = dist.new_group([0, 1])
    model = nn.Sequential(
        parallel.SyncBatchNorm(3, process_group=own),
        parallel.ParallelQKNorm(3, process_group=own),
    )
    new = copy.deepcopy(model)
    return all(
        b.process_group is own and b.weight is not a.weight for a, b in zip(model, new, strict=True)
    )


def batch_norm_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6, bias=False), nn.BatchNorm1d(6), nn.Linear(6, 2))


def examine_batch_norm(x, wrapped, synchronized):
    """Rules and modules, and the running mean behind the examination."""
    model = batch_norm_model()
    if synchronized:
        model = parallel.convert_sync_batchnorm(model)
    given = DistributedDataParallel(model) if wrapped else model
    examined = doctor(given, x + dist.get_rank())
    return {f.rule: f.modules for f in examined.findings}, model[1].running_mean.tolist()


def examine_gradients(x, norm):
    """Findings between backward and step, without and with the reduction."""
    model = Block(NORMS[norm]).double()
    mine = x.split((5, 3))[dist.get_rank()]
    model(mine).square().sum().backward()
    found = []
    for reduce in (False, True):
        if reduce:
            parallel.reduce_norm_gradients(model)
        found.append({f.rule: f.modules for f in doctor(model, mine).findings})
    return tuple(found)
