"""Does a batch norm keep the gradients of a deep plain network from exploding?"""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.sweep import Seed, experiment


def predicted_growth() -> float:
    """Growth of the squared gradient norm per layer of batch norm and ReLU, at infinite width.

    Source:
        yang2019mean, Section 3 and Appendix: pi / (pi - 1).

    Example:
        >>> round(predicted_growth(), 4)
        1.4669
    """
    return math.pi / (math.pi - 1)


@experiment(norm=("none", "batch_norm", "layer_norm"), seed=range(3))
def depth_gradients(
    norm: FeatureNorm,
    seed: Seed,
    *,
    depth: Annotated[int, Field(ge=2)] = 30,
    width: PositiveInt = 512,
    batch_size: PositiveInt = 128,
) -> dict[str, Any]:
    """Send one random gradient down one freshly initialized network.

    A deep ReLU network without skips, He init, random input, one backward pass.

    Args:
        width: units of each, and of the input.
        batch_size: samples of standard normal input.

    Returns:
        squared_norms: of the gradient with respect to each hidden layer's output, input side
            first, divided by that of the last layer.
        growth: factor per layer, from the last layer down to the first (geometric mean).
    """
    widths = (width,) * (depth + 2)
    model = make_mlp(widths, norm, seed=seed, init="he")
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(batch_size, width, generator=generator)
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
