"""What does weight decay do to the weights of norms, and to the network?"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.layers import BatchNorm1d, LayerNorm, RMSNorm

Decayed = Literal["everything", "matrices", "nothing"]


def make_groups(model: nn.Module, decayed: Decayed, decay: float) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer, the first with weight decay and the other without.

    Vectors are biases and the parameters of norms, so the number of axes tells them apart.

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


@experiment(norm=("batch_norm", "layer_norm"), decayed=get_args(Decayed), seed=range(3))
def norm_weight_decay(
    norm: FeatureNorm,
    decayed: Decayed,
    seed: Seed,
    *,
    steps: Steps = 200,
    batch_size: PositiveInt = 64,
    lr: PositiveFloat = 3e-3,
) -> dict[str, float]:
    """Train an MLP on digits by AdamW with a weight decay of 1.

    Returns:
        norm_weight: mean over the weights of its norms; 1 at the start.
        accuracy: on the test digits.
        loss: cross-entropy on the test digits.
    """
    data = load_digits_split(seed)
    model = make_mlp((64, 64, 64, 10), norm, seed=seed)
    adam = torch.optim.AdamW(make_groups(model, decayed, 1.0), lr=lr)
    fit(model, adam, data.batches(batch_size, seed), steps)
    norms = [m for m in model if isinstance(m, BatchNorm1d | LayerNorm | RMSNorm)]
    score = evaluate(model, data.x_test, data.y_test)
    mean = float(torch.cat([m.weight.detach() for m in norms if m.weight is not None]).mean())
    return {"norm_weight": mean, "accuracy": score.accuracy, "loss": score.loss}
