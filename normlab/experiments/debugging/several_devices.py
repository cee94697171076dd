"""Which statistics must devices or micro-batches share to act as one large batch?"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.settings import Count, Index, check_settings
from normlab.layers import batch_norm, layer_norm

Method = Literal["own statistics", "averaged", "merged, cut", "merged", "layer norm"]
_EPS = 1e-5


@dataclass(frozen=True)
class Config:
    """One batch, divided among devices."""

    shares: tuple[int, ...] = (6, 6, 12)  #: samples on each device
    features: Count = 5  #: C
    #: of the samples of each next device, in standard deviations; 0 for shuffled data
    shift: float = 0.0
    methods: tuple[Method, ...] = get_args(Method)  #: what the devices share
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of inputs and upstream gradients

    def __post_init__(self) -> None:
        check_settings(self)
        if len(self.shares) < 2 or min(self.shares) < 2:
            raise ValueError(
                f"shares: got {self.shares}; expected at least two devices with two samples each"
            )


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


def run_one(config: Config, method: Method, seed: int) -> dict[str, float]:
    """Compare one way to share with the undivided batch, in float64.

    Measures:
        output_error: rms distance of the outputs over the rms of the right ones.
        gradient_error: the same of the gradient by the input.
    """
    g = torch.Generator().manual_seed(seed)
    count = sum(config.shares)
    x = torch.randn(count, config.features, generator=g, dtype=torch.float64)
    dy = torch.randn(count, config.features, generator=g, dtype=torch.float64)
    x += config.shift * torch.repeat_interleave(torch.tensor(config.shares))[:, None]
    x.requires_grad_()
    y = _apply(method, x.split(config.shares))
    right = _apply("layer norm" if method == "layer norm" else "own statistics", [x])
    (dx,) = torch.autograd.grad(y, x, dy)
    (right_dx,) = torch.autograd.grad(right, x, dy)
    return {"output_error": _distance(y, right), "gradient_error": _distance(dx, right_dx)}


run = Sweep(run_one, method="methods", seed="seeds")
