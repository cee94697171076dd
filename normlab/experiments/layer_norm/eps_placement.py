"""What does LayerNorm's eps change, inside the root and outside, when the input is small?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.numerics.eps_forms import normalize_with
from normlab.experiments.settings import Count, Index, NotNegative, Positive
from normlab.layers import layer_norm

Placement = Literal["inside", "outside"]


@dataclass(frozen=True)
class Config:
    """Rows of a given standard deviation, normalized in float64 with eps in two places."""

    #: inside the root, or outside, where eps is added to the standard deviation
    placements: tuple[Placement, ...] = get_args(Placement)
    #: standard deviations of the input
    scales: tuple[Positive, ...] = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    #: both ways; inside the root it has the units of x², outside those of x
    eps: NotNegative = 1e-5
    features: Count = 64  #: H
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of the rows


def _normalize(x: Tensor, placement: Placement, eps: float) -> Tensor:
    if placement == "inside":
        return layer_norm(x, x.shape[-1:], eps=eps)
    return normalize_with(x, eps, placement)


def largest_gain(config: Config, placement: Placement) -> float:
    """Largest factor by which the layer enlarges a small change of a constant row."""
    change = torch.linspace(-1, 1, config.features, dtype=torch.float64) * 1e-12
    row = torch.full((config.features,), 3.0, dtype=torch.float64)
    before, after = (_normalize(x, placement, config.eps) for x in (row, row + change))
    return ((after - before).norm() / change.norm()).item()


def run_one(config: Config, placement: Placement, scale: float, seed: int) -> dict[str, float]:
    """Normalize one row.

    Measures:
        output_rms: of the normalized row.
    """
    generator = torch.Generator().manual_seed(seed)
    row = torch.randn(config.features, generator=generator, dtype=torch.float64)
    row = layer_norm(row, (config.features,), eps=0.0)  # mean 0 and std 1, exactly
    y = _normalize(row * scale, placement, config.eps)
    return {"output_rms": y.square().mean().sqrt().item()}


run = Sweep(run_one, placement="placements", scale="scales", seed="seeds")
