"""A chain of matrices: what the size of the weights and of the data does at its end."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from normlab.book.experiments.networks.classifiers import FeatureNorm
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.proofs.invariances import find_linear_norm


def _rms(x: Tensor) -> float:
    return x.detach().square().mean().sqrt().item()


@experiment(
    norm=("none", "batch_norm", "layer_norm", "rms_norm"),
    gain=(0.5, 1.0, 2.0),
    data_scale=(1.0, 100.0),
    seed=range(3),
)
def deep_products(
    norm: FeatureNorm,
    gain: PositiveFloat,
    data_scale: PositiveFloat,
    seed: Seed,
    *,
    depth: PositiveInt = 30,
    width: Annotated[int, Field(ge=2)] = 64,
    samples: Annotated[int, Field(ge=3)] = 32,
    activation: Literal["none", "relu"] = "none",
) -> dict[str, Any]:
    """Send data forth through linear layers in float64, and one random gradient back.

    The variance of the weights is that which keeps the signal of the plain network of gain 1:
    1 / width, or 2 / width with ReLU.

    Args:
        norm: after each layer, with eps = 0.

    Returns:
        rms: root mean square of the signal, for the input and after every layer.
        gradient_rms: of the gradient with respect to the input, for an upstream one of rms 1.
        gradient_growth: factor of the squared gradient per layer, from the top down (geometric
            mean).
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    h = x = (data_scale * normal(samples, width)).requires_grad_()
    relu = activation == "relu"
    std = ((2 if relu else 1) / width) ** 0.5
    rms = [_rms(h)]
    for _ in range(depth):
        weight = gain * std * normal(width, width)
        if norm == "none":
            h = h @ weight.T
        else:
            h = find_linear_norm(norm)(weight, h[:, :, None])[:, :, 0]
        if relu:
            h = h.relu()
        rms.append(_rms(h))
    (gradient,) = torch.autograd.grad(h, x, normal(*h.shape))
    size = _rms(gradient)
    return {"rms": rms, "gradient_rms": size, "gradient_growth": size ** (2 / depth)}
