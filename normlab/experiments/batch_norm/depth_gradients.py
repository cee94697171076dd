"""Does a batch norm keep the gradients of a deep plain network from exploding?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index

__all__ = ["Config", "Profile", "Result", "predicted_growth", "run", "run_one"]


def predicted_growth() -> float:
    """Growth of the squared gradient norm per layer of batch norm and ReLU, at infinite width.

    Source:
        yang2019mean, Section 3 and Appendix: pi / (pi - 1).

    Example:
        >>> round(predicted_growth(), 4)
        1.4669
    """
    return math.pi / (math.pi - 1)


@dataclass(frozen=True)
class Config:
    """A deep ReLU network without skips, He init, random input, one backward pass.

    Attributes:
        norms: arms.
        depth: hidden layers.
        width: units of each, and of the input.
        batch_size: samples of standard normal input.
        seeds: each gives weights, input and upstream gradient.
    """

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")
    depth: Count = 30
    width: Count = 512
    batch_size: Count = 128
    seeds: tuple[Index, ...] = (0, 1, 2)


@dataclass(frozen=True)
class Profile:
    """Gradients at the output of every hidden layer of one network.

    Attributes:
        norm: arm.
        seed: of weights, input and upstream gradient.
        squared_norms: of the gradient with respect to each layer's output, input side first,
            divided by that of the last layer.
    """

    norm: str
    seed: int
    squared_norms: tuple[float, ...]

    @property
    def growth(self) -> float:
        """Factor per layer, from the last layer down to the first (geometric mean)."""
        return self.squared_norms[0] ** (1 / (len(self.squared_norms) - 1))


@dataclass(frozen=True)
class Result:
    """All profiles."""

    profiles: tuple[Profile, ...]

    def of(self, norm: str) -> list[Profile]:
        """The profiles of one arm, one for each seed."""
        return [p for p in self.profiles if p.norm == norm]


def run_one(config: Config, norm: FeatureNorm, seed: int) -> Profile:
    """Send one random gradient down one freshly initialized network."""
    widths = (config.width,) * (config.depth + 2)
    model = make_mlp(widths, norm, seed=seed, init="he")
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(config.batch_size, config.width, generator=generator)
    outputs: list[Tensor] = []
    for i, module in enumerate(list(model)[:-1]):  # linear, norm, activation, ...
        h = module(h)
        if i % 3 == 2:
            h.retain_grad()
            outputs.append(h)
    upstream = torch.randn(h.shape, generator=generator)
    h.backward(upstream)
    squared = [o.grad.double().square().sum().item() for o in outputs if o.grad is not None]
    return Profile(norm, seed, tuple(s / squared[-1] for s in squared))


def run(config: Config) -> Result:
    """Measure every arm with every seed."""
    return Result(
        tuple(run_one(config, norm, seed) for norm in config.norms for seed in config.seeds)
    )
