"""Does a batch norm belong before the activation or behind it?"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import evaluate, fit

Order = Literal["no norm", "before the ReLU", "after the ReLU"]


def make_network(order: Order, seed: int) -> nn.Sequential:
    """The MLP of :func:`make_mlp`, with each norm and the activation behind it swapped if asked."""
    model = make_mlp((64, 128, 128, 10), "none" if order == "no norm" else "batch_norm", seed=seed)
    modules = list(model)
    if order == "after the ReLU":
        for i in range(1, len(modules) - 1, 3):  # linear, norm, activation, ...
            modules[i : i + 2] = modules[i + 1], modules[i]
    return nn.Sequential(*modules)


@experiment(
    order=("no norm", "before the ReLU", "after the ReLU"),
    lr=(0.01, 0.03, 0.1, 0.3, 1.0),
    seed=range(5),
)
def norm_order(
    order: Order, lr: PositiveFloat, seed: Seed, *, steps: Steps = 100
) -> dict[str, float]:
    """An MLP on digits with the norm in one of two places, every place at every learning rate.

    Returns:
        train_loss: mean of the last 20 steps, in train mode.
        eval_accuracy: on the 500 test digits, with running statistics.
    """
    data = load_digits_split(seed)
    model = make_network(order, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = fit(model, optimizer, data.batches(128, seed), steps)
    score = evaluate(model, data.x_test, data.y_test)
    return {"train_loss": sum(losses[-20:]) / 20, "eval_accuracy": score.accuracy}
