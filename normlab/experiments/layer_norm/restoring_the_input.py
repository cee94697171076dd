"""Can a weight and a bias per feature undo a norm?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.settings import Count, Index
from normlab.layers import batch_norm, layer_norm, rms_norm

Source = Literal["normal", "digits"]


@dataclass(frozen=True)
class Config:
    """Summed inputs, normalized without parameters, and the best weight and bias afterwards."""

    #: "normal" draws the summed inputs from N(0, 1); "digits" sends the digits' pixels through a
    #: random linear layer
    sources: tuple[Source, ...] = ("normal", "digits")
    features: tuple[Count, ...] = (4, 8, 16, 64, 256)  #: values of H
    samples: Count = 1000  #: rows
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of rows, or of digits and weights


def _summed_inputs(config: Config, source: Source, features: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if source == "normal":
        return torch.randn(config.samples, features, generator=generator, dtype=torch.float64)
    pixels = load_digits_split(seed).x_train[: config.samples].double()
    pixels = pixels - pixels.mean(0)
    w = torch.randn(features, pixels.shape[1], generator=generator, dtype=torch.float64)
    return pixels @ w.T / pixels.shape[1] ** 0.5


def share_lost(x: Tensor, y: Tensor) -> float:
    """Share of the variance of `x` (N, H) that weight · y + bias per feature cannot reproduce.

    Conventions:
        least squares for each feature over all samples; the mean over features of the share.
    """
    xc, yc = x - x.mean(0), y - y.mean(0)
    weight = (xc * yc).mean(0) / yc.square().mean(0)
    left = (xc - weight * yc).square().mean(0) / xc.square().mean(0)
    return left.mean().item()


def run_one(config: Config, source: Source, features: int, seed: int) -> list[dict[str, Any]]:
    """Normalize one input in each way and fit.

    Measures:
        norm: the norm that was applied.
        lost: share of the input's variance that the best weight and bias per feature leave.
    """
    x = _summed_inputs(config, source, features, seed)
    ys = {
        "batch_norm": batch_norm(x, None, None, training=True),
        "layer_norm": layer_norm(x, (features,)),
        "rms_norm": rms_norm(x, (features,)),
    }
    return [{"norm": norm, "lost": share_lost(x, y)} for norm, y in ys.items()]


run = Sweep(run_one, source="sources", features="features", seed="seeds")
