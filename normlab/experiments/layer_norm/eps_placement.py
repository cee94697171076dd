"""What does LayerNorm's eps change, inside the root and outside, when the input is small?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.experiments.settings import Count, Index, NotNegative, Positive
from normlab.layers import layer_norm

__all__ = ["Config", "Result", "run"]


@dataclass(frozen=True)
class Config:
    """Rows of a given standard deviation, normalized in float64 with eps in two places.

    Attributes:
        scales: standard deviations of the input.
        eps: both ways; inside the root it has the units of x², outside those of x.
        features: H.
        seeds: of the rows.
    """

    scales: tuple[Positive, ...] = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    eps: NotNegative = 1e-5
    features: Count = 64
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Result:
    """What comes out.

    Attributes:
        inside: output rms with eps inside the root, one row per seed, one column per scale.
        outside: the same with eps added to the standard deviation.
        predicted_inside: s / sqrt(s² + eps) for each scale s.
        predicted_outside: s / (s + eps).
        gain_inside: largest factor by which the layer enlarges a small change of a constant row.
        gain_outside: the same with eps outside the root.
    """

    inside: tuple[tuple[float, ...], ...]
    outside: tuple[tuple[float, ...], ...]
    predicted_inside: tuple[float, ...]
    predicted_outside: tuple[float, ...]
    gain_inside: float
    gain_outside: float


def _eps_outside(x: Tensor, eps: float) -> Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered / (centered.square().mean(-1, keepdim=True).sqrt() + eps)


def _largest_gain(norm: Callable[[Tensor], Tensor], features: int) -> float:
    """Output size over input size for a tiny centered change of a constant row."""
    change = torch.linspace(-1, 1, features, dtype=torch.float64) * 1e-12
    row = torch.full((features,), 3.0, dtype=torch.float64)
    return ((norm(row + change) - norm(row)).norm() / change.norm()).item()


def run(config: Config) -> Result:
    """Measure the output's size for each scale, and the gain at a constant row."""
    inside, outside = [], []
    for seed in config.seeds:
        generator = torch.Generator().manual_seed(seed)
        row = torch.randn(config.features, generator=generator, dtype=torch.float64)
        row = layer_norm(row, (config.features,), eps=0.0)  # mean 0 and std 1, exactly
        scaled = [row * s for s in config.scales]
        inside.append(
            tuple(
                layer_norm(x, (config.features,), eps=config.eps).square().mean().sqrt().item()
                for x in scaled
            )
        )
        outside.append(
            tuple(_eps_outside(x, config.eps).square().mean().sqrt().item() for x in scaled)
        )
    return Result(
        tuple(inside),
        tuple(outside),
        tuple(s / (s * s + config.eps) ** 0.5 for s in config.scales),
        tuple(s / (s + config.eps) for s in config.scales),
        _largest_gain(lambda x: layer_norm(x, (config.features,), eps=config.eps), config.features),
        _largest_gain(lambda x: _eps_outside(x, config.eps), config.features),
    )
