"""Does a batch norm belong before the activation or behind it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import make_mlp
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, train_on_digits

Order = Literal["no norm", "before the ReLU", "after the ReLU"]


@dataclass(frozen=True)
class Config:
    """An MLP on digits with the norm in one of two places, every place at every learning rate."""

    #: where the batch norm stands
    orders: tuple[Order, ...] = ("no norm", "before the ReLU", "after the ReLU")
    #: learning rates of SGD without momentum
    lrs: tuple[Positive, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    #: each gives a split, initial weights and an order of batches
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    widths: tuple[Count, ...] = (64, 128, 128, 10)  #: sizes of the MLP
    batch_size: Count = 128  #: samples in a batch
    steps: Count = 100  #: updates


def make_network(config: Config, order: Order, seed: int) -> nn.Sequential:
    """The MLP of :func:`make_mlp`, with each norm and the activation behind it swapped if asked."""
    model = make_mlp(config.widths, "none" if order == "no norm" else "batch_norm", seed=seed)
    modules = list(model)
    if order == "after the ReLU":
        for i in range(1, len(modules) - 1, 3):  # linear, norm, activation, ...
            modules[i : i + 2] = modules[i + 1], modules[i]
    return nn.Sequential(*modules)


def run_one(config: Config, order: Order, lr: float, seed: int) -> dict[str, float]:
    """Train one network.

    Measures:
        train_loss: mean of the last 20 steps, in train mode.
        eval_accuracy: on the 500 test digits, with running statistics.
    """
    data = load_digits_split(seed)
    model = make_network(config, order, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = train_on_digits(
        model, data, optimizer, steps=config.steps, batch_size=config.batch_size, seed=seed
    )
    score = evaluate(model, data.x_test, data.y_test)
    return {"train_loss": sum(losses[-20:]) / 20, "eval_accuracy": score.accuracy}


run = Sweep(run_one, order="orders", lr="lrs", seed="seeds")
