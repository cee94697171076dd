"""How far off may the initial weights be, with and without a norm?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.motivation.shifting_inputs import initialize_xavier_
from normlab.experiments.networks.classifiers import Activation, FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, train_on_digits


@dataclass(frozen=True)
class Config:
    """A deep tanh network on digits whose initial weights are too small, right or too large."""

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")  #: of the hidden layers
    #: factors of Xavier's initial weights
    scales: tuple[Positive, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    #: learning rates of SGD without momentum
    lrs: tuple[Positive, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    #: each gives a split, initial weights and an order of batches
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    widths: tuple[Count, ...] = (64, *[100] * 6, 10)  #: sizes of the MLP
    activation: Activation = "tanh"  #: of the hidden layers
    batch_size: Count = 64  #: samples in a batch
    steps: Count = 100  #: updates


def run_one(
    config: Config, norm: FeatureNorm, scale: float, lr: float, seed: int
) -> dict[str, float]:
    """Train one network.

    Measures:
        eval_accuracy: on the 500 test digits; chance is 0.1.
    """
    data = load_digits_split(seed)
    model = make_mlp(config.widths, norm, seed=seed, activation=config.activation)
    initialize_xavier_(model, scale, seed=seed)
    sgd = torch.optim.SGD(model.parameters(), lr=lr)
    train_on_digits(model, data, sgd, steps=config.steps, batch_size=config.batch_size, seed=seed)
    return {"eval_accuracy": evaluate(model, data.x_test, data.y_test).accuracy}


run = Sweep(run_one, norm="norms", scale="scales", lr="lrs", seed="seeds")
