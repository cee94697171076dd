"""Does a batch norm keep the gradients of a deep plain network from exploding?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index, Several


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
    """A deep ReLU network without skips, He init, random input, one backward pass."""

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")  #: of the hidden layers
    depth: Several = 30  #: hidden layers
    width: Count = 512  #: units of each, and of the input
    batch_size: Count = 128  #: samples of standard normal input
    seeds: tuple[Index, ...] = (0, 1, 2)  #: each gives weights, input and upstream gradient


def run_one(config: Config, norm: FeatureNorm, seed: int) -> dict[str, Any]:
    """Send one random gradient down one freshly initialized network.

    Measures:
        squared_norms: of the gradient with respect to each hidden layer's output, input side
            first, divided by that of the last layer.
        growth: factor per layer, from the last layer down to the first (geometric mean).
    """
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
    relative = tuple(s / squared[-1] for s in squared)
    return {"squared_norms": relative, "growth": relative[0] ** (1 / (len(relative) - 1))}


run = Sweep(run_one, norm="norms", seed="seeds")
