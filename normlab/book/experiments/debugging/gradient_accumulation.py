"""Does a gradient that is accumulated over micro-batches equal that of the whole batch?"""

from __future__ import annotations

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.sweep import Seed, experiment

BATCH_SIZE = 64


def accumulate(model: nn.Module, x: Tensor, y: Tensor, parts: int) -> Tensor:
    """Gradient of the mean loss as one vector, accumulated over equal micro-batches.

    The running statistics of the model move.
    """
    model.zero_grad()
    for x_part, y_part in zip(x.chunk(parts), y.chunk(parts), strict=True):
        (cross_entropy(model(x_part), y_part) / parts).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def _check_parts(parts: int) -> None:
    if BATCH_SIZE % parts:
        raise ValueError(f"parts: got {parts}; expected a divisor of {BATCH_SIZE}")


@experiment(
    norm=("none", "batch_norm", "layer_norm", "rms_norm"),
    parts=(2, 4, 8, 16),
    seed=range(5),
    condition=_check_parts,
)
def gradient_accumulation(norm: FeatureNorm, parts: PositiveInt, seed: Seed) -> dict[str, float]:
    """Accumulate the gradient of one batch of digits in an MLP, in float64.

    Returns:
        error: distance of the accumulated gradient from that of the whole batch, over the
            length of the latter.
    """
    data = load_digits_split(seed)
    x, y = data.x_train[:BATCH_SIZE].double(), data.y_train[:BATCH_SIZE]
    model = make_mlp((64, 64, 64, 10), norm, seed=seed).double()
    whole = accumulate(model, x, y, 1)
    return {"error": float((accumulate(model, x, y, parts) - whole).norm() / whole.norm())}
