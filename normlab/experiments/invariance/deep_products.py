"""A chain of matrices: what the size of the weights and of the data does at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from normlab.checks.invariances import find_linear_norm
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import FeatureNorm
from normlab.experiments.settings import Count, Index, Positive, Several, at_least


@dataclass(frozen=True)
class Config:
    """Linear layers, each followed by a norm with eps = 0 or by nothing, in float64.

    The variance of the weights is that which keeps the signal of the plain network of gain 1:
    1 / width, or 2 / width with ReLU.
    """

    #: after each layer
    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm", "rms_norm")
    gains: tuple[Positive, ...] = (0.5, 1.0, 2.0)  #: factors of every weight matrix
    data_scales: tuple[Positive, ...] = (1.0, 100.0)  #: factors of the input
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of weights, data and upstream gradient
    depth: Count = 30  #: layers
    width: Several = 64  #: of all layers
    samples: Annotated[int, at_least(3)] = 32  #: N
    activation: Literal["none", "relu"] = "none"  #: after every norm


def _rms(x: Tensor) -> float:
    return x.detach().square().mean().sqrt().item()


def run_one(
    config: Config, norm: FeatureNorm, gain: float, data_scale: float, seed: int
) -> dict[str, Any]:
    """Send data forth and one random gradient back.

    Measures:
        rms: root mean square of the signal, for the input and after every layer.
        gradient_rms: of the gradient with respect to the input, for an upstream one of rms 1.
        gradient_growth: factor of the squared gradient per layer, from the top down (geometric
            mean).
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    h = x = (data_scale * normal(config.samples, config.width)).requires_grad_()
    relu = config.activation == "relu"
    std = ((2 if relu else 1) / config.width) ** 0.5
    rms = [_rms(h)]
    for _ in range(config.depth):
        weight = gain * std * normal(config.width, config.width)
        if norm == "none":
            h = h @ weight.T
        else:
            h = find_linear_norm(norm)(weight, h[:, :, None])[:, :, 0]
        if relu:
            h = h.relu()
        rms.append(_rms(h))
    (gradient,) = torch.autograd.grad(h, x, normal(*h.shape))
    size = _rms(gradient)
    return {"rms": tuple(rms), "gradient_rms": size, "gradient_growth": size ** (2 / config.depth)}


run = Sweep(run_one, norm="norms", gain="gains", data_scale="data_scales", seed="seeds")
