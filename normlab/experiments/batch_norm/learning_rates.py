"""Which norms let a network train at a learning rate that breaks it without them?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.networks.classifiers import Activation, FeatureNorm, make_mlp
from normlab.experiments.results import Result
from normlab.experiments.settings import Count, Index, Positive, Share
from normlab.experiments.sweep import Sweep
from normlab.experiments.training import evaluate, train_on_digits


@dataclass(frozen=True)
class Config:
    """An MLP on digits, plain SGD, every norm at every learning rate."""

    #: of the hidden layers
    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm", "rms_norm")
    #: learning rates of SGD without momentum
    lrs: tuple[Positive, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    #: each gives a split, initial weights and an order of batches
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    widths: tuple[Count, ...] = (64, 128, 128, 10)  #: sizes of the MLP
    activation: Activation = "relu"  #: of the hidden layers
    batch_size: Count = 128  #: samples in a batch
    steps: Count = 200  #: updates
    trained_above: Share = 0.9  #: test accuracy from which a run counts as trained


def run_one(config: Config, norm: FeatureNorm, lr: float, seed: int) -> dict[str, float]:
    """Train one network.

    Measures:
        eval_accuracy: on the 500 test digits; chance is 0.1.
    """
    data = load_digits_split(seed)
    model = make_mlp(config.widths, norm, seed=seed, activation=config.activation)
    sgd = torch.optim.SGD(model.parameters(), lr=lr)
    train_on_digits(model, data, sgd, steps=config.steps, batch_size=config.batch_size, seed=seed)
    return {"eval_accuracy": evaluate(model, data.x_test, data.y_test).accuracy}


run = Sweep(run_one, norm="norms", lr="lrs", seed="seeds")


def largest_lr(result: Result, norm: str, *, above: float) -> float:
    """Largest learning rate at which every seed of `norm` passes `above`; 0.0 if none."""
    lrs = {o.lr for o in result.of(norm=norm)}
    passed = [lr for lr in lrs if min(result.values("eval_accuracy", norm=norm, lr=lr)) > above]
    return max(passed, default=0.0)
