"""Norms of which each process has other features, or other tokens, with and without a mistake.

Each function runs on every process of a group.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from normlab.layers import RMSNorm
from normlab.parallel import plain, reduce_norm_gradients, sum_over_group
from normlab.parallel.mutants import reduce_wrongly, wrong_rms_norm

REDUCTIONS: dict[str, Callable[[nn.Module], object]] = {
    "not reduced": functools.partial(reduce_wrongly, "partial"),
    "averaged": functools.partial(reduce_wrongly, "averaged"),
    "summed": reduce_norm_gradients,
    "summed twice": functools.partial(reduce_wrongly, "reduced_twice"),
}


def _make(tokens: int, features: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x, dy = torch.randn(2, tokens, features, generator=g, dtype=torch.float64)
    return x, 1.5 + torch.randn(features, generator=g, dtype=torch.float64) / 2, dy


def _whole(x: Tensor, weight: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Output and gradients on one process."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    y = rms_norm(x, weight.shape, weight, 1e-5)
    dx, dweight = torch.autograd.grad(y, (x, weight), dy)
    return y.detach(), dx, dweight


class Errors(NamedTuple):
    """Largest differences from one process."""

    y: float  #: of the output
    dx: float  #: of the input gradient
    dweight: float  #: of the weight gradient


def _largest(*pairs: tuple[Tensor, Tensor]) -> Errors:
    return Errors(*(float((a - b).abs().max()) for a, b in pairs))


def plain_features(shares: tuple[int, ...]) -> Errors:
    """The plain functions; `shares` are the features of each process."""
    whole = _make(5, sum(shares))
    rank = dist.get_rank()
    x, weight, dy = (t.split(shares, -1)[rank] for t in whole)
    y, cache = plain.features_rms_norm(x, weight, 1e-5)
    found = (y, *plain.features_rms_norm_backward(dy, cache))
    right = (t.split(shares, -1)[rank] for t in _whole(*whole))
    return _largest(*zip(found, right, strict=True))


def features_with(mistake: str, shares: tuple[int, ...]) -> Errors:
    """RMS norm over divided features, with a mistake in its all-reduce.

    `mistake` is as for :func:`normlab.parallel.mutants.wrong_rms_norm`, "" for none; `shares` are
    the features of each process.
    """
    whole = _make(5, sum(shares))
    rank = dist.get_rank()
    x, weight, dy = (t.split(shares, -1)[rank] for t in whole)
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    y = wrong_rms_norm(mistake, x, weight, 1e-5)
    found = (y.detach(), *torch.autograd.grad(y, (x, weight), dy))
    right = (t.split(shares, -1)[rank] for t in _whole(*whole))
    return _largest(*zip(found, right, strict=True))


class Step(NamedTuple):
    """A step of gradient descent with a norm whose tokens are divided."""

    error: float  #: largest difference of the weight gradient from that of one process
    apart: float  #: largest difference between the processes' weights after the step


def take_step(reduction: str, shares: tuple[int, ...] = (5, 3), lr: float = 0.1) -> Step:
    """One step, after what the entry `reduction` of :data:`REDUCTIONS` does to the gradients.

    `shares` are the tokens of each process.
    """
    whole = _make(sum(shares), 6)
    rank = dist.get_rank()
    norm = RMSNorm(6, eps=1e-5, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.copy_(whole[1])
    x, dy = (t.split(shares)[rank] for t in (whole[0], whole[2]))
    norm(x).backward(dy)
    REDUCTIONS[reduction](norm)
    assert norm.weight.grad is not None
    error = float((norm.weight.grad - _whole(*whole)[2]).abs().max())
    with torch.no_grad():
        new = norm.weight - lr * norm.weight.grad
    mean = sum_over_group(new) / dist.get_world_size()
    return Step(error, 2 * float((new - mean).abs().max()))


def replicated_loss() -> float:
    """Gradient of a weight, relative to the right one, where every process has the loss.

    The hidden units of a linear layer are divided, their products are summed over the processes,
    and each process takes the loss of the sum, all with the same value.
    """
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    x = torch.arange(3.0, dtype=torch.float64) + dist.get_rank()
    total = sum_over_group((weight * x).sum())
    total.backward()
    assert weight.grad is not None
    return float((weight.grad / x.clamp(min=1e-9))[1])


def two_backwards(ds: tuple[float, float], reduced: bool) -> float:
    """Gradient of a process's own number, of which all processes get the sum s.

    Args:
        ds: gradient of s on each of two processes.
        reduced: whether the backward pass of the sum is an all-reduce; else it is the identity.
    """
    own = torch.tensor(1.0 + dist.get_rank(), dtype=torch.float64, requires_grad=True)
    total = sum_over_group(own) if reduced else own + (sum_over_group(own.detach()) - own.detach())
    (ds[dist.get_rank()] * total).backward()
    assert own.grad is not None
    return float(own.grad)
