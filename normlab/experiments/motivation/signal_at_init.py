"""How much of the difference between samples reaches the deeper layers of a fresh network?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index, Positive, check_settings

__all__ = ["Config", "Profile", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """A deep network at initialization; nothing is trained.

    Attributes:
        norms: arms.
        seeds: of split and weights.
        activation: of the hidden layers.
        gain: the weights are Xavier-normal times this.
        depth: hidden layers.
        width: units of each.
        batch_size: digits that are sent through, as one batch.
    """

    norms: tuple[FeatureNorm, ...] = ("none", "layer_norm", "batch_norm")
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    activation: Literal["sigmoid", "tanh", "relu"] = "sigmoid"
    gain: Positive = 1.0
    depth: Count = 6
    width: Count = 100
    batch_size: Count = 256

    def __post_init__(self) -> None:
        check_settings(self)
        if self.depth < 1:
            raise ValueError(f"depth: got {self.depth}; expected at least 1 hidden layer")
        if self.batch_size < 2:
            raise ValueError(
                f"batch_size: got {self.batch_size}; expected at least 2 digits to compare"
            )


@dataclass(frozen=True)
class Profile:
    """One network.

    Attributes:
        norm: arm.
        seed: of split and weights.
        spread: standard deviation over the digits of what enters each nonlinearity, root mean
            square over the units, one number per hidden layer, input side first.
        size: root mean square of the same values over digits and units.
    """

    norm: str
    seed: int
    spread: tuple[float, ...]
    size: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    """All profiles."""

    outcomes: tuple[Profile, ...]

    def spreads(self, norm: str) -> list[tuple[float, ...]]:
        """(seeds, layers)."""
        return [p.spread for p in self.outcomes if p.norm == norm]

    def sizes(self, norm: str) -> list[tuple[float, ...]]:
        """(seeds, layers)."""
        return [p.size for p in self.outcomes if p.norm == norm]


@torch.no_grad()
def run_one(config: Config, norm: FeatureNorm, seed: int) -> Profile:
    """Send one batch through one fresh network."""
    widths = (64, *[config.width] * config.depth, 10)
    model = make_mlp(widths, norm, seed=seed, activation=config.activation)
    generator = torch.Generator().manual_seed(seed)
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight, config.gain, generator=generator)
            nn.init.zeros_(module.bias)
    x = load_digits_split(seed).x_train[: config.batch_size]
    spread, size = [], []
    for i, module in enumerate(list(model)[:-1]):  # linear, norm, nonlinearity, ...
        x = module(x)
        if i % 3 == 1:
            z = x.double()
            spread.append((z - z.mean(0)).square().mean().sqrt().item())
            size.append(z.square().mean().sqrt().item())
    return Profile(norm, seed, tuple(spread), tuple(size))


def run(config: Config) -> Result:
    """Measure every arm with every seed."""
    return Result(tuple(run_one(config, n, s) for n in config.norms for s in config.seeds))
