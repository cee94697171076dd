"""Which comparisons survive a norm: of two samples in one feature, of two features of a sample?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.settings import Count, Index
from normlab.layers import batch_norm, layer_norm


@dataclass(frozen=True)
class Config:
    """Digits through a random linear layer, then a norm without parameters."""

    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of digits and weights
    samples: Count = 128  #: N
    features: Count = 32  #: H


def kept_order(x: Tensor, y: Tensor) -> float:
    """Share of pairs along the last axis that `x` and `y` put into the same order."""
    n = x.shape[-1]
    first, second = torch.triu_indices(n, n, 1)
    before = torch.sign(x[..., first] - x[..., second])
    after = torch.sign(y[..., first] - y[..., second])
    return (before == after).double().mean().item()


def run_one(config: Config, seed: int) -> list[dict[str, Any]]:
    """Normalize and compare the order of all pairs before and after.

    Measures:
        norm: the norm that was applied.
        across_samples: share of the pairs of samples in one feature that keep their order.
        within_sample: the same for pairs of features in one sample.
    """
    generator = torch.Generator().manual_seed(seed)
    pixels = load_digits_split(seed).x_train[: config.samples].double()
    w = torch.randn(pixels.shape[1], config.features, generator=generator, dtype=torch.float64)
    x = pixels @ w
    ys = {
        "batch_norm": batch_norm(x, None, None, training=True),
        "layer_norm": layer_norm(x, (config.features,)),
    }
    return [
        {"norm": n, "across_samples": kept_order(x.T, y.T), "within_sample": kept_order(x, y)}
        for n, y in ys.items()
    ]


run = Sweep(run_one, seed="seeds")
