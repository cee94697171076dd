"""The values by which the check recognizes a mistake; `mistakes` names them.

Each function gives what all processes together have, from a whole and from the shares into which
it is divided.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normlab.norms import NORMS
from normlab.parallel.division import MOMENTUM, Division, Values, one_process, scalar
from normlab.parallel.moments import merge_moments


class _Parts(NamedTuple):
    """Moments of each share, (R, \\*) with size 1 along what is reduced."""

    counts: Tensor
    means: Tensor
    vars: Tensor


def _measure(case: Division) -> _Parts:
    axis = case.axis
    centered = NORMS[case.like].centered
    means, spreads = [], []
    for part in case.x.split(case.shards, axis):
        some = max(1, part.shape[axis])
        mean = part.sum(axis, keepdim=True) / some * centered
        means.append(mean)
        spreads.append((part - mean).square().sum(axis, keepdim=True) / some)
    counts = case.x.new_tensor(case.shards)
    return _Parts(counts, torch.stack(means), torch.stack(spreads))


def _affine(case: Division, x_hat: Tensor) -> Tensor:
    y = x_hat * case.weight
    return y if case.bias is None else y + case.bias


def _normalize(case: Division, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    return _affine(case, (case.x - mean) * torch.rsqrt(var + eps))


def _expand(case: Division, parts: Tensor) -> Tensor:
    """One entry for each cell of the divided axis, from one for each share."""
    pairs = zip(parts, case.shards, strict=True)
    return torch.cat([p.repeat_interleave(n, case.axis) for p, n in pairs], case.axis)


# Outputs.


def normalized_alone(case: Division, eps: float) -> Tensor:
    """Each share by its own statistics."""
    _, means, spreads = _measure(case)
    return _normalize(case, _expand(case, means), _expand(case, spreads), eps)


def merged_as_equal(case: Division, eps: float) -> Tensor:
    """By the moments of shares that count the same."""
    counts, means, spreads = _measure(case)
    _, mean, var = merge_moments(torch.ones_like(counts), means, spreads)
    return _normalize(case, mean, var, eps)


def merged_without_means(case: Division, eps: float) -> Tensor:
    """By the mean of the variances."""
    counts, means, spreads = _measure(case)
    _, mean, _ = merge_moments(counts, means, spreads)
    n = counts.reshape(-1, 1, 1)
    return _normalize(case, mean, (n * spreads).sum(0) / counts.sum(), eps)


def _by_heads(case: Division, eps: float, axes: tuple[int, ...]) -> Tensor:
    """By statistics over axes of the (samples, heads, tokens, features) of each process."""
    found = []
    for share in case.arrange(case.x).split([n // case.unit for n in case.shards], 1):
        mean = share.mean(axes, keepdim=True) * NORMS[case.like].centered
        var = (share - mean).square().mean(axes, keepdim=True)
        found.append((share - mean) * torch.rsqrt(var + eps))
    return _affine(case, case.collect(torch.cat(found, 1)))


def heads_together(case: Division, eps: float) -> Tensor:
    """The heads of a process by one statistic."""
    return _by_heads(case, eps, (1, 3))


def each_head(case: Division, eps: float) -> Tensor:
    """Each head by its own statistics."""
    return _by_heads(case, eps, (3,))


def with_first_weights(case: Division, eps: float) -> Tensor:
    """Each process multiplies by the first weights."""
    first = torch.cat([torch.arange(n) for n in case.shards])
    y = one_process(case, eps, affine=False).y * case.weight[first]
    return y if case.bias is None else y + case.bias[first]


# Input gradients, where the output is right; `right` is the right one.


def detached(case: Division, right: Tensor, eps: float) -> Tensor:
    """The statistics are constants."""
    counts, means, spreads = _measure(case)
    _, _, var = merge_moments(counts, means, spreads * counts.reshape(-1, 1, 1))
    return case.dy * case.weight * torch.rsqrt(var + eps)


def through_statistics_twice(case: Division, right: Tensor, eps: float) -> Tensor:
    """What comes through the statistics is summed over the processes once more."""
    direct = detached(case, right, eps)
    return direct + len(case.shards) * (right - direct)


def by_own_count(case: Division, right: Tensor, eps: float) -> Tensor:
    """What comes through the statistics is divided by the count of the share."""
    counts = case.x.new_tensor(case.shards)
    factors = counts.sum() / counts.clamp(min=1)
    direct = detached(case, right, eps)
    return direct + _expand(case, factors.reshape(-1, 1, 1)) * (right - direct)


def of_own_outputs(case: Division, right: Tensor, eps: float) -> Tensor:
    """Gradients of a process's outputs, where mean and deviations are sent at once."""
    return _of_own_outputs(case, eps, at_once=True)


def of_own_outputs_in_turn(case: Division, right: Tensor, eps: float) -> Tensor:
    """The same where the deviations are sent after the mean: those of others do not follow it."""
    return _of_own_outputs(case, eps, at_once=False)


def _of_own_outputs(case: Division, eps: float, at_once: bool) -> Tensor:
    found = [_own_gradient(case, rank, eps, at_once) for rank in range(len(case.shards))]
    return torch.cat(found, case.axis)


def _own_gradient(case: Division, rank: int, eps: float, at_once: bool) -> Tensor:
    parts = list(case.x.split(case.shards, case.axis))
    own = parts[rank] = parts[rank].clone().requires_grad_()
    x = torch.cat(parts, case.axis)
    size = max(1, x.shape[case.axis])
    mean = x.sum(case.axis, keepdim=True) / size * NORMS[case.like].centered
    deviations = [p - (mean if at_once or p is own else mean.detach()) for p in parts]
    var = torch.cat(deviations, case.axis).square().sum(case.axis, keepdim=True) / size
    y = deviations[rank] * torch.rsqrt(var + eps)
    share = case.share(rank)
    return torch.autograd.grad(scalar(y, share.dy * share.weight), own)[0]


# Running mean and variance of one process; None where its share has no variance.


def running_of_share(case: Division, rank: int, right: Values) -> tuple[Tensor, Tensor] | None:
    """Those of its share."""
    _, means, spreads = _measure(case)
    n = case.shards[rank]
    if n < 2:
        return None
    var = spreads[rank, 0] * (n / (n - 1))
    return MOMENTUM * means[rank, 0], (1 - MOMENTUM) + MOMENTUM * var


def running_biased(case: Division, rank: int, right: Values) -> tuple[Tensor, Tensor]:
    """Without Bessel's correction."""
    assert right.running_mean is not None and right.running_var is not None
    kept = 1 - MOMENTUM  # of the first running variance, which is 1
    total = sum(case.shards)
    return right.running_mean, kept + (right.running_var - kept) * ((total - 1) / total)


def running_by_own_count(case: Division, rank: int, right: Values) -> tuple[Tensor, Tensor] | None:
    """With Bessel's correction for the cells of its share."""
    n, kept = case.shards[rank], 1 - MOMENTUM
    if n < 2:
        return None
    mean, biased = running_biased(case, rank, right)
    return mean, kept + (biased - kept) * (n / (n - 1))


# Gradients of weight or bias.


class Summands(NamedTuple):
    """Of a gradient that is summed over the processes."""

    total: Tensor  #: the right sum
    parts: list[Tensor]  #: what the samples or tokens of each process give
    rank: int  #: the process whose gradient it is


def split_parameter_gradient(case: Division, rank: int, eps: float) -> tuple[Tensor, Tensor]:
    """What one process's own samples or tokens give to the gradients of weight and bias."""
    x_hat = one_process(case, eps, affine=False).y
    dy, x_hat = (t.split(case.shards, 0)[rank] for t in (case.dy, x_hat))
    return (dy * x_hat).sum(0), dy.sum(0)


def summed_in_bfloat16(given: Summands) -> Tensor:
    """The sum of rounded parts."""
    first, *others = (part.bfloat16() for part in given.parts)
    return sum(others, first).double()
