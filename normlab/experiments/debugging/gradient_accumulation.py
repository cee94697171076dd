"""Does a gradient that is accumulated over micro-batches equal that of the whole batch?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index, check_settings


@dataclass(frozen=True)
class Config:
    """One batch of digits through one network, whole and in parts."""

    #: one network for each
    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm", "rms_norm")
    parts: tuple[int, ...] = (2, 4, 8, 16)  #: numbers of micro-batches; divisors of `batch_size`
    batch_size: Count = 64  #: samples of the whole batch
    widths: tuple[Count, ...] = (64, 64, 64, 10)  #: sizes of the MLP
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of split and weights

    def __post_init__(self) -> None:
        check_settings(self)
        if wrong := [k for k in self.parts if self.batch_size % k]:
            raise ValueError(f"parts: got {wrong}; expected divisors of {self.batch_size}")


def accumulate(model: nn.Module, x: Tensor, y: Tensor, parts: int) -> Tensor:
    """Gradient of the mean loss as one vector, accumulated over equal micro-batches.

    The running statistics of the model move.
    """
    model.zero_grad()
    for x_part, y_part in zip(x.chunk(parts), y.chunk(parts), strict=True):
        (cross_entropy(model(x_part), y_part) / parts).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def run_one(config: Config, norm: FeatureNorm, parts: int, seed: int) -> dict[str, float]:
    """Accumulate one gradient, in float64.

    Measures:
        error: distance of the accumulated gradient from that of the whole batch, over the
            length of the latter.
    """
    data = load_digits_split(seed)
    x, y = data.x_train[: config.batch_size].double(), data.y_train[: config.batch_size]
    model = make_mlp(config.widths, norm, seed=seed).double()
    whole = accumulate(model, x, y, 1)
    return {"error": float((accumulate(model, x, y, parts) - whole).norm() / whole.norm())}


run = Sweep(run_one, norm="norms", parts="parts", seed="seeds")
