"""What enters the nonlinearities of a deep network while it trains, with and without batch norm?

The inputs of each nonlinearity are watched on one fixed set of digits: their spread, and the share
of saturated units.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import check_every, evaluate, fit

Group = Literal["none", "batch_norm"]
Activation = Literal["sigmoid", "tanh"]
PROBE = 500  # training digits on which inputs are watched


def initialize_xavier_(model: nn.Sequential, gain: float, *, seed: int) -> None:
    """Redraw the weights of the linear layers as Glorot and Bengio do, times `gain`."""
    generator = torch.Generator().manual_seed(seed)
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight, gain, generator=generator)
            nn.init.zeros_(module.bias)


def make_network(group: Group, seed: int, *, activation: Activation) -> nn.Sequential:
    """Build linear → norm → nonlinearity for each of five hidden layers and a linear output."""
    model = make_mlp((64, *[100] * 5, 10), group, seed=seed, activation=activation)
    initialize_xavier_(model, 1.0, seed=seed)
    return model


@torch.no_grad()
def watch(model: nn.Sequential, x: Tensor) -> list[Tensor]:
    """What enters each nonlinearity, in train mode; running statistics stay as they are."""
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train()
    seen = []
    for i, module in enumerate(list(model)[:-1]):  # linear, norm, nonlinearity, ...
        x = module(x)
        if i % 3 == 1:
            seen.append(x)
    for name, buffer in model.named_buffers():
        buffer.copy_(kept[name])
    return seen


def is_saturated(z: Tensor) -> Tensor:
    """Whether the slope of a sigmoid at each value is below a twentieth of its largest."""
    return 1 - (z / 2).tanh().square() < 0.05  # sigmoid(z) = (1 + tanh(z / 2)) / 2


def _rows(values: Tensor) -> list[list[float]]:
    """(looks, layers) as one row for each layer, to four digits, which keeps the records small."""
    return [list(map(rounded, row)) for row in values.double().T.tolist()]


@experiment(group=("none", "batch_norm"), seed=range(5), condition=check_every)
def shifting_inputs(
    group: Group,
    seed: Seed,
    *,
    lr: PositiveFloat = 0.05,
    steps: Steps = 300,
    every: PositiveInt = 20,
) -> dict[str, Any]:
    """Train a network of five hidden layers of 100 sigmoids on digits, and watch it.

    Args:
        group: the plain network, or one with a batch norm before each sigmoid; the weights start
            Xavier-normal.
        lr: of SGD with momentum 0.9, in batches of 64.

    Returns:
        steps: of the looks; the first is 0, before training.
        accuracy: on the 500 test digits at each look, in eval mode.
        spread: (layers, looks), input side first: standard deviation over the digits, mean over
            units.
        saturated: (layers, looks): share of values where the sigmoid's slope is below a twentieth
            of its largest.
    """
    data = load_digits_split(seed)
    model = make_network(group, seed, activation="sigmoid")
    looks: list[Tensor] = []
    accuracy: list[float] = []

    def look(step: int) -> None:
        if step % every == 0:
            looks.append(torch.stack(watch(model, data.x_train[:PROBE])))
            accuracy.append(evaluate(model, data.x_test, data.y_test).accuracy)

    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    look(0)
    fit(model, optimizer, data.batches(64, seed), steps, after_step=look)
    z = torch.stack(looks)  # (looks, layers, digits, units)
    return {
        "steps": list(range(0, every * len(looks), every)),
        "accuracy": [rounded(a) for a in accuracy],
        "spread": _rows(z.std(2, correction=0).mean(2)),
        "saturated": _rows(is_saturated(z).double().mean((2, 3))),
    }
