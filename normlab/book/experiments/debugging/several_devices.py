"""Which statistics must devices or micro-batches share to act as one large batch?"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, get_args

import torch
from pydantic import Field
from torch import Tensor

from normlab.book.experiments.sweep import Seed, experiment
from normlab.layers import batch_norm, layer_norm

Method = Literal["own statistics", "averaged", "merged, cut", "merged", "layer norm"]
Shares = Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)]
_EPS = 1e-5


class Moments(NamedTuple):
    """Count, mean and sum of squared deviations of each channel."""

    n: int  #: samples
    mean: Tensor  #: (C,)
    squares: Tensor  #: (C,)


def measure_moments(x: Tensor) -> Moments:
    """What one device finds in its own samples (N, C)."""
    mean = x.mean(0)
    return Moments(len(x), mean, (x - mean).square().sum(0))


def merge(a: Moments, b: Moments) -> Moments:
    r"""Moments of two sets together, from those of each.

    .. math:: \mu = \mu_a + \frac{n_b}{n} \delta, \qquad
              S = S_a + S_b + \frac{n_a n_b}{n} \delta^2, \qquad \delta = \mu_b - \mu_a

    Source:
        chan1983algorithms, Eq. 2.1.
    """
    n = a.n + b.n
    delta = b.mean - a.mean
    squares = a.squares + b.squares + delta.square() * (a.n * b.n / n)
    return Moments(n, a.mean + delta * (b.n / n), squares)


def _merged(parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    total = functools.reduce(merge, map(measure_moments, parts))
    return total.mean, total.squares / total.n


def _averaged(parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The weighted mean of the devices' variances, which misses how far their means differ."""
    found = [measure_moments(part) for part in parts]
    n = sum(m.n for m in found)
    mean = torch.stack([m.mean * (m.n / n) for m in found]).sum(0)
    return mean, torch.stack([m.squares for m in found]).sum(0) / n


def _apply(method: Method, parts: Sequence[Tensor]) -> Tensor:
    if method == "own statistics":
        return torch.cat([batch_norm(p, None, None, training=True, eps=_EPS) for p in parts])
    if method == "layer norm":
        return torch.cat([layer_norm(p, p.shape[1:], eps=_EPS) for p in parts])
    mean, var = (_averaged if method == "averaged" else _merged)(parts)
    if method == "merged, cut":
        mean, var = mean.detach(), var.detach()
    return torch.cat([(p - mean) * (var + _EPS).rsqrt() for p in parts])


def _distance(found: Tensor, right: Tensor) -> float:
    return float(((found - right).square().mean() / right.square().mean()).sqrt().detach())


@experiment(method=get_args(Method), seed=range(5))
def several_devices(
    method: Method,
    seed: Seed,
    *,
    shares: Shares = (6, 6, 12),
    shift: float = 0.0,
) -> dict[str, float]:
    """Compare a batch that is divided among devices with the undivided one, in float64.

    Args:
        method: what the devices share.
        shares: samples on each device.
        shift: of the samples of each next device, in standard deviations; 0 for shuffled data.

    Returns:
        output_error: rms distance of the outputs over the rms of the right ones.
        gradient_error: the same of the gradient by the input.
    """
    g = torch.Generator().manual_seed(seed)
    count, features = sum(shares), 5
    x = torch.randn(count, features, generator=g, dtype=torch.float64)
    dy = torch.randn(count, features, generator=g, dtype=torch.float64)
    x += shift * torch.repeat_interleave(torch.tensor(shares))[:, None]
    x.requires_grad_()
    y = _apply(method, x.split(shares))
    right = _apply("layer norm" if method == "layer norm" else "own statistics", [x])
    (dx,) = torch.autograd.grad(y, x, dy)
    (right_dx,) = torch.autograd.grad(right, x, dy)
    return {"output_error": _distance(y, right), "gradient_error": _distance(dx, right_dx)}
