"""What does weight decay do to the weights of norms, and to the network?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index, NotNegative, Positive
from normlab.experiments.training import evaluate, train_on_digits
from normlab.layers import BatchNorm1d, LayerNorm, RMSNorm

Decayed = Literal["everything", "matrices", "nothing"]


@dataclass(frozen=True)
class Config:
    """An MLP on digits, trained by AdamW."""

    norms: tuple[FeatureNorm, ...] = ("batch_norm", "layer_norm")  #: one set of networks for each
    decayed: tuple[Decayed, ...] = get_args(Decayed)  #: which parameters
    decay: NotNegative = 1.0  #: weight decay of AdamW
    steps: Count = 200  #: of training
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of split, weights and order
    widths: tuple[Count, ...] = (64, 64, 64, 10)  #: sizes of the MLP
    batch_size: Count = 64  #: samples in a batch
    lr: Positive = 3e-3  #: of AdamW


def make_groups(model: nn.Module, decayed: Decayed, decay: float) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer, the first with weight decay and the other without.

    Vectors are biases and the parameters of norms, so the number of axes tells them apart.

    Raises:
        ValueError: `decayed` is none of the three.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6))
        >>> [(len(g["params"]), g["weight_decay"]) for g in make_groups(net, "matrices", 0.1)]
        [(1, 0.1), (3, 0.0)]
    """
    if decayed not in get_args(Decayed):
        raise ValueError(f"decayed: got {decayed!r}; expected one of {get_args(Decayed)}")
    parameters = list(model.parameters())
    least = {"everything": 0, "matrices": 2, "nothing": 99}[decayed]
    return [
        {"params": [p for p in parameters if p.dim() >= least], "weight_decay": decay},
        {"params": [p for p in parameters if p.dim() < least], "weight_decay": 0.0},
    ]


def run_one(config: Config, norm: FeatureNorm, decayed: Decayed, seed: int) -> dict[str, float]:
    """Train and score one network.

    Measures:
        norm_weight: mean over the weights of its norms; 1 at the start.
        accuracy: on the test digits.
        loss: cross-entropy on the test digits.
    """
    data = load_digits_split(seed)
    model = make_mlp(config.widths, norm, seed=seed)
    adam = torch.optim.AdamW(make_groups(model, decayed, config.decay), lr=config.lr)
    train_on_digits(model, data, adam, steps=config.steps, batch_size=config.batch_size, seed=seed)
    norms = [m for m in model if isinstance(m, BatchNorm1d | LayerNorm | RMSNorm)]
    score = evaluate(model, data.x_test, data.y_test)
    mean = float(torch.cat([m.weight.detach() for m in norms if m.weight is not None]).mean())
    return {"norm_weight": mean, "accuracy": score.accuracy, "loss": score.loss}


run = Sweep(run_one, norm="norms", decayed="decayed", seed="seeds")
