"""What does LayerNorm's eps change, inside the root and outside, when the input is small?"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from pydantic import PositiveFloat
from torch import Tensor

from normlab.book.experiments.numerics.eps_forms import normalize_with
from normlab.book.experiments.sweep import Seed, experiment
from normlab.layers import layer_norm

Placement = Literal["inside", "outside"]
EPS = 1e-5


def _normalize(x: Tensor, placement: Placement, eps: float) -> Tensor:
    if placement == "inside":
        return layer_norm(x, x.shape[-1:], eps=eps)
    return normalize_with(x, eps, placement)


def largest_gain(placement: Placement) -> float:
    """Largest factor by which the layer enlarges a small change of a constant row."""
    change = torch.linspace(-1, 1, 64, dtype=torch.float64) * 1e-12
    row = torch.full((64,), 3.0, dtype=torch.float64)
    before, after = (_normalize(x, placement, EPS) for x in (row, row + change))
    return ((after - before).norm() / change.norm()).item()


@experiment(placement=get_args(Placement), scale=(1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5), seed=range(5))
def eps_placement(placement: Placement, scale: PositiveFloat, seed: Seed) -> dict[str, float]:
    """Normalize a row of a given standard deviation in float64, with eps in one of two places.

    Args:
        placement: inside the root, or outside, where eps is added to the standard deviation.
        scale: standard deviation of the input.

    Returns:
        output_rms: of the normalized row.
    """
    generator = torch.Generator().manual_seed(seed)
    row = torch.randn(64, generator=generator, dtype=torch.float64)
    row = layer_norm(row, (64,), eps=0.0)  # mean 0 and std 1, exactly
    y = _normalize(row * scale, placement, EPS)
    return {"output_rms": y.square().mean().sqrt().item()}
