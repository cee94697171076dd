"""Which comparisons survive a norm: of two samples in one feature, of two features of a sample?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.settings import Count, Index
from normlab.layers import batch_norm, layer_norm

__all__ = ["Config", "Outcome", "Result", "kept_order", "run"]


@dataclass(frozen=True)
class Config:
    """Digits through a random linear layer, then a norm without parameters.

    Attributes:
        seeds: of digits and weights.
        samples: N.
        features: H.
    """

    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    samples: Count = 128
    features: Count = 32


@dataclass(frozen=True)
class Outcome:
    """Shares of pairs whose order is the same before and after.

    Attributes:
        norm: the norm that was applied.
        seed: of digits and weights.
        across_samples: pairs of samples compared in one feature.
        within_sample: pairs of features compared in one sample.
    """

    norm: str
    seed: int
    across_samples: float
    within_sample: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def shares(self, norm: str, measure: str) -> list[float]:
        """One share for each seed."""
        return [getattr(o, measure) for o in self.outcomes if o.norm == norm]


def kept_order(x: Tensor, y: Tensor) -> float:
    """Share of pairs along the last axis that `x` and `y` put into the same order.

    Shape:
        x and y (\\*, n).
    """
    n = x.shape[-1]
    first, second = torch.triu_indices(n, n, 1)
    before = torch.sign(x[..., first] - x[..., second])
    after = torch.sign(y[..., first] - y[..., second])
    return (before == after).double().mean().item()


def run(config: Config) -> Result:
    """Normalize and compare the order of all pairs."""
    outcomes = []
    for seed in config.seeds:
        generator = torch.Generator().manual_seed(seed)
        pixels = load_digits_split(seed).x_train[: config.samples].double()
        w = torch.randn(pixels.shape[1], config.features, generator=generator, dtype=torch.float64)
        x = pixels @ w
        ys = {
            "batch_norm": batch_norm(x, None, None, training=True),
            "layer_norm": layer_norm(x, (config.features,)),
        }
        for norm, y in ys.items():
            outcomes.append(Outcome(norm, seed, kept_order(x.T, y.T), kept_order(x, y)))
    return Result(tuple(outcomes))
