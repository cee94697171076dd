"""Does a gradient that is accumulated over micro-batches equal that of the whole batch?"""

from __future__ import annotations

import torch
from pydantic import NonNegativeInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.sweep import experiment


def accumulate(model: nn.Module, x: Tensor, y: Tensor, parts: int) -> Tensor:
    """Gradient of the mean loss as one vector, accumulated over equal micro-batches.

    The running statistics of the model move.
    """
    model.zero_grad()
    for x_part, y_part in zip(x.chunk(parts), y.chunk(parts), strict=True):
        (cross_entropy(model(x_part), y_part) / parts).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@experiment(
    norm=("none", "batch_norm", "layer_norm", "rms_norm"), parts=(2, 4, 8, 16), seed=range(5)
)
def gradient_accumulation(norm: FeatureNorm, parts: int, seed: NonNegativeInt) -> dict[str, float]:
    """Accumulate one gradient, in float64.

    One batch of digits through one network, whole and in parts.

    Args:
        norm: one network for each.
        parts: numbers of micro-batches; divisors of `batch_size`.
        seed: of split and weights.

    Returns:
        error: distance of the accumulated gradient from that of the whole batch, over the
            length of the latter.
    """
    data = load_digits_split(seed)
    x, y = data.x_train[:64].double(), data.y_train[:64]
    model = make_mlp((64, 64, 64, 10), norm, seed=seed).double()
    whole = accumulate(model, x, y, 1)
    return {"error": float((accumulate(model, x, y, parts) - whole).norm() / whole.norm())}
