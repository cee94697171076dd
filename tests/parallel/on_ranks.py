"""What the tests run on several processes: one share of a whole, forward and backward."""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from normlab import parallel
from normlab.parallel import plain
from normlab.parallel.division import scalar

EPS = 1e-5


class Share(NamedTuple):
    """What one process, or one process with all, found."""

    y: torch.Tensor
    dx: torch.Tensor
    dweight: torch.Tensor
    dbias: torch.Tensor | None
    running_mean: torch.Tensor | None = None
    running_var: torch.Tensor | None = None


def mine(tensor, shards, axis):
    return tensor.split(shards, axis)[dist.get_rank()].clone()


def differentiate(function, x, weight, bias, dy):
    """Output and gradients, through a random upstream gradient."""
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias) if t is not None]
    y = function(*leaves)
    found = torch.autograd.grad(scalar(y, dy), leaves)
    return Share(y.detach(), *found, *[None] * (3 - len(found)))


def batch(shards, x, weight, bias, dy):
    x, dy = (mine(t, shards, 0) for t in (x, dy))
    mean, var = torch.zeros_like(weight), torch.ones_like(weight)
    share = differentiate(
        lambda *p: parallel.sync_batch_norm(p[0], mean, var, *p[1:], training=True, eps=EPS),
        x,
        weight,
        bias,
        dy,
    )
    return share._replace(running_mean=mean, running_var=var)


def batch_module(shards, x, weight, bias, dy):
    """Two steps, so that momentum shows."""
    layer = parallel.SyncBatchNorm(len(weight), dtype=x.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    x, dy = (mine(t, shards, 0) for t in (x, dy))
    layer(x)
    leaf = x.requires_grad_()
    y = layer(leaf)
    scalar(y, dy).backward()
    return Share(
        y.detach(),
        leaf.grad,
        layer.weight.grad,
        layer.bias.grad,
        layer.running_mean,
        layer.running_var,
    )


def features(norm, shards, x, weight, bias, dy):
    x, weight, dy = (mine(t, shards, -1) for t in (x, weight, dy))
    bias = None if bias is None else mine(bias, shards, -1)
    return differentiate(lambda *p: norm(*p, eps=EPS), x, weight, bias, dy)


def features_layer(*args):
    return features(parallel.layer_norm, *args)


def features_rms(*args):
    return features(parallel.rms_norm, *args)


def query_heads(shards, x, weight, bias, dy):
    """Each head by itself; x is (N, heads, T, head_dim)."""
    layer = parallel.ParallelQKNorm(len(weight), eps=EPS, dtype=x.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
    leaf = mine(x, shards, 1).requires_grad_()
    y = layer(leaf)
    scalar(y, mine(dy, shards, 1)).backward()
    return Share(y.detach(), leaf.grad, layer.weight.grad, None)


def all_query_heads(shards, x, weight, bias, dy):
    """All heads together; weight is (heads, head_dim)."""
    layer = parallel.ParallelQKNorm(
        x.shape[-1], heads=shards[dist.get_rank()], eps=EPS, dtype=x.dtype
    )
    with torch.no_grad():
        layer.weight.copy_(mine(weight, shards, 0))
    leaf = mine(x, shards, 1).requires_grad_()
    y = layer(leaf)
    scalar(y, mine(dy, shards, 1)).backward()
    return Share(y.detach(), leaf.grad, layer.weight.grad, None)


def plain_batch(shards, x, weight, bias, dy):
    y, cache = plain.sync_batch_norm(mine(x, shards, 0), weight, bias, EPS)
    return Share(y, *plain.sync_batch_norm_backward(mine(dy, shards, 0), cache))


def plain_features_rms(shards, x, weight, bias, dy):
    x, weight, dy = (mine(t, shards, -1) for t in (x, weight, dy))
    y, cache = plain.features_rms_norm(x, weight, EPS)
    return Share(y, *plain.features_rms_norm_backward(dy, cache), None)


def plain_features_layer(shards, x, weight, bias, dy):
    x, weight, bias, dy = (mine(t, shards, -1) for t in (x, weight, bias, dy))
    y, cache = plain.features_layer_norm(x, weight, bias, EPS)
    return Share(y, *plain.features_layer_norm_backward(dy, cache))


def plain_tokens_rms(shards, x, weight, bias, dy):
    y, cache = plain.tokens_rms_norm(mine(x, shards, 0), weight, EPS)
    return Share(y, *plain.tokens_rms_norm_backward(mine(dy, shards, 0), cache), None)


def second_gradient(shards, x, weight, bias, dy):
    """The gradient of a function of the input gradient."""
    x, dy = mine(x, shards, 0).requires_grad_(), mine(dy, shards, 0)
    y = parallel.sync_batch_norm(x, None, None, weight, bias, True, 0.1, EPS)
    (dx,) = torch.autograd.grad(scalar(y, dy), x, create_graph=True)
    return torch.autograd.grad(dx.tanh().sum(), x)[0]


def evaluation_alone(x, weight):
    """Only rank 0 calls the layer in evaluation: nothing is sent, so nobody waits."""
    layer = parallel.SyncBatchNorm(len(weight)).eval()
    return layer(x).detach() if dist.get_rank() == 0 else None


def half(shards, dtype, x, weight):
    x = mine(x, shards, 0).to(dtype)
    mean, var = torch.zeros_like(weight), torch.ones_like(weight)
    y = parallel.sync_batch_norm(x, mean, var, weight, weight, True, 0.1, EPS)
    return y, mean, var


def two_groups(x):
    """Ranks 0 and 1 share a batch, and ranks 2 and 3 another one."""
    group, _ = dist.new_subgroups(2)
    y = parallel.sync_batch_norm(x[dist.get_rank()], None, None, None, None, True, group=group)
    dist.destroy_process_group(group)
    return y


def foreign_group(x):
    group = dist.new_group([0])
    if dist.get_rank() == 0:
        return ""
    try:
        parallel.rms_norm(x, group=group)
    except ValueError as error:
        return str(error)
    return "no error"


def one_value():
    try:
        parallel.sync_batch_norm(torch.ones(1 - dist.get_rank(), 3), None, None, training=True)
    except ValueError as error:
        return str(error)
    return "no error"


def nobody():
    mean, var = torch.zeros(3), torch.ones(3)
    x = torch.ones(0, 3, requires_grad=True)
    y = parallel.sync_batch_norm(x, mean, var, training=True)
    y.sum().backward()
    return y.detach(), x.grad, mean, var


def identity_of_sum():
    """One rank's part of a sum that all use, and its gradient."""
    x = torch.tensor([1.0 + dist.get_rank()], requires_grad=True)
    total = parallel.sum_over_group(x)
    (total * (1 + dist.get_rank())).backward()
    return total.item(), x.grad.item()


def torchs_own():
    """What torch's SyncBatchNorm says on a CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            nn.SyncBatchNorm(3)(torch.randn(4, 3))
        except ValueError as error:
            return str(error)
    return "it runs"


def raise_on_one():
    if dist.get_rank() == 1:
        raise KeyError("the reason")
    return parallel.sum_over_group(torch.ones(2)).tolist()


def skip_on_one():
    return "skipped" if dist.get_rank() == 1 else parallel.sum_over_group(torch.ones(2)).tolist()


def sleep_on_one():
    while dist.get_rank() == 1:
        time.sleep(1)


def die_on_one():
    if dist.get_rank() == 1:
        raise SystemExit(3)


class _Record(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.name())
        return function(*args, **(kwargs or {}))


def operators():
    """Names of all operators that a training step of the module calls."""
    layer = parallel.SyncBatchNorm(3)
    with _Record() as record:
        layer(torch.randn(4, 3, requires_grad=True)).square().sum().backward()
    return sorted(record.names)
