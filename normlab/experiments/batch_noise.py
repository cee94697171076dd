"""How much does one sample's normalized value depend on the samples beside it?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.experiments.digits import load_digits_split
from normlab.experiments.networks import make_mlp
from normlab.layers import batch_norm, layer_norm

__all__ = ["Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """The summed inputs of a first layer, normalized again and again in other company.

    Attributes:
        norms: "batch_norm" or "layer_norm".
        batch_sizes: the fixed sample included.
        draws: of companions.
        seeds: each gives a split, a layer and the draws.
        width: units of the layer.
    """

    norms: tuple[str, ...] = ("batch_norm", "layer_norm")
    batch_sizes: tuple[int, ...] = (2, 4, 8, 32, 128)
    draws: int = 200
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    width: int = 128


@dataclass(frozen=True)
class Outcome:
    """The noise at one batch size.

    Attributes:
        norm: arm.
        batch_size: samples that share statistics.
        seed: of split, layer and draws.
        noise: standard deviation of the sample's normalized value over the draws, as the root
            of the mean square over units.
    """

    norm: str
    batch_size: int
    seed: int
    noise: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, norm: str, batch_size: int) -> list[float]:
        """The noise of `norm` at `batch_size`, one number for each seed."""
        return [o.noise for o in self.outcomes if (o.norm, o.batch_size) == (norm, batch_size)]

    def median(self, norm: str, batch_size: int) -> float:
        """Median of :meth:`values`."""
        return statistics.median(self.values(norm, batch_size))


def _normalize(norm: str, x: Tensor) -> Tensor:
    if norm == "batch_norm":
        return batch_norm(x, None, None, training=True)
    if norm == "layer_norm":
        return layer_norm(x, (x.shape[-1],))
    raise ValueError(f"norm: got {norm!r}; expected 'batch_norm' or 'layer_norm'")


@torch.no_grad()
def run_one(config: Config, norm: str, batch_size: int, seed: int) -> Outcome:
    """Draw companions for the first training digit and normalize it among them."""
    data = load_digits_split(seed)
    summed = make_mlp((64, config.width, 10), seed=seed)[0](data.x_train)  # (1297, width)
    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(config.draws):
        others = 1 + torch.randperm(len(summed) - 1, generator=generator)[: batch_size - 1]
        values.append(_normalize(norm, torch.cat([summed[:1], summed[others]]))[0])
    drawn = torch.stack(values).double()  # (draws, width)
    deviations = drawn - drawn.mean(0)
    return Outcome(norm, batch_size, seed, deviations.square().mean().sqrt().item())


def run(config: Config) -> Result:
    """Measure every norm at every batch size with every seed."""
    return Result(
        tuple(
            run_one(config, norm, batch_size, seed)
            for norm in config.norms
            for batch_size in config.batch_sizes
            for seed in config.seeds
        )
    )
