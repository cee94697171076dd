"""How much do a layer's inputs move during training, and does it matter?

The inputs of each nonlinearity are watched on one fixed set of digits while a deep network
trains: their mean, their spread, the share of saturated units. One group of runs shakes them on
purpose, two hold some layers still.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import check_every, evaluate, fit
from normlab.layers import BatchNorm1d

Group = Literal["none", "batch_norm", "noisy_batch_norm", "frozen_below", "frozen_above"]
Activation = Literal["sigmoid", "tanh"]
PERCENTILES = (15, 50, 85)  # of one unit
PROBE = 500  # training digits on which inputs are watched


class NoisyBatchNorm(BatchNorm1d):
    """Batch norm whose output is shifted and scaled at random, anew in every training step.

    Each unit is shifted by up to `noise` and scaled by 1 plus or minus up to `noise / 2`, both
    uniform; in evaluation it is a plain batch norm.

    Source:
        after the experiment of santurkar2018how, Section 2.1.
    """

    def __init__(self, num_features: int, noise: float = 1.0) -> None:
        super().__init__(num_features)
        self.noise = noise

    def forward(self, input: Tensor) -> Tensor:
        """Normalize, then shift and scale each unit."""
        y: Tensor = super().forward(input)
        if not self.training:
            return y
        shift, scale = self.noise * (2 * torch.rand(2, y.shape[1]) - 1)
        return y * (1 + scale / 2) + shift


def initialize_xavier_(model: nn.Sequential, gain: float, *, seed: int) -> None:
    """Redraw the weights of the linear layers as Glorot and Bengio do, times `gain`."""
    generator = torch.Generator().manual_seed(seed)
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight, gain, generator=generator)
            nn.init.zeros_(module.bias)


def make_network(group: Group, seed: int, *, activation: Activation, depth: int) -> nn.Sequential:
    """Build linear → norm → nonlinearity for each hidden layer and a linear output."""
    norm: Literal["none", "batch_norm"] = "batch_norm" if "batch" in group else "none"
    model = make_mlp((64, *[100] * depth, 10), norm, seed=seed, activation=activation)
    initialize_xavier_(model, 1.0, seed=seed)
    if group == "noisy_batch_norm":
        for i, module in enumerate(model):
            if isinstance(module, BatchNorm1d):
                model[i] = NoisyBatchNorm(100)
    if group == "frozen_below":
        model[: 3 * (depth - 1)].requires_grad_(False)
    elif group == "frozen_above":
        model[3 * (depth - 1) :].requires_grad_(False)
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


def is_saturated(z: Tensor, activation: str) -> Tensor:
    """Whether the slope at each value is below a twentieth of its largest."""
    half = z / 2 if activation == "sigmoid" else z  # sigmoid(z) = (1 + tanh(z / 2)) / 2
    return 1 - half.tanh().square() < 0.05


def _rows(values: Tensor) -> list[list[float]]:
    """(looks, layers) as one row for each layer, to four digits, which keeps the records small."""
    return [list(map(rounded, row)) for row in values.double().T.tolist()]


def summarize(z: Tensor, activation: Activation) -> dict[str, Any]:
    """What is measured of the inputs (looks, layers, digits, units)."""
    mean = z.double().mean(2)
    std = (z - mean[:, :, None]).square().mean(2).sqrt()
    moved = (mean[1:] - mean[:-1]).abs() / std[:-1].clamp_min(1e-6)
    one = z[:, -1, :, 0].quantile(torch.tensor(PERCENTILES) / 100, dim=1)
    return {
        "shift": _rows(moved.mean(2)),
        "spread": _rows(std.mean(2)),
        "saturated": _rows(is_saturated(z, activation).double().mean((2, 3))),
        "percentiles": _rows(one.T),
    }


class Watched(NamedTuple):
    """A training run."""

    losses: list[float]  #: of each step
    looks: Tensor  #: (looks, layers, digits, units), what entered the nonlinearities
    accuracy: list[float]  #: on the 500 test digits at each look, in eval mode
    train_mode_accuracy: list[float]  #: the same in train mode, by their own statistics


def train_and_watch(
    group: Group,
    seed: int,
    *,
    activation: Activation,
    depth: int,
    lr: float,
    momentum: float,
    batch_size: int,
    steps: int,
    every: int,
) -> Watched:
    """Train one network and look at it every so many steps; the first look is before training."""
    data = load_digits_split(seed)
    model = make_network(group, seed, activation=activation, depth=depth)
    looks: list[Tensor] = []
    accuracy: list[float] = []
    train_mode: list[float] = []

    def look(step: int) -> None:
        if step % every == 0:
            looks.append(torch.stack(watch(model, data.x_train[:PROBE])))
            accuracy.append(evaluate(model, data.x_test, data.y_test).accuracy)
            with torch.random.fork_rng(devices=[]):  # the noise of training goes on as it was
                scored = evaluate(model, data.x_test, data.y_test, mode="train")
            train_mode.append(scored.accuracy)

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=lr, momentum=momentum)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the noise
        look(0)
        losses = fit(model, optimizer, data.batches(batch_size, seed), steps, after_step=look)
    return Watched(losses, torch.stack(looks), accuracy, train_mode)


@experiment(group=("none", "batch_norm", "noisy_batch_norm"), seed=range(3), condition=check_every)
def shifting_inputs(
    group: Group,
    seed: Seed,
    *,
    activation: Activation = "sigmoid",
    lr: PositiveFloat = 0.05,
    steps: Steps = 300,
    every: PositiveInt = 20,
) -> dict[str, Any]:
    """Train a network of five hidden layers of 100 units on digits, and watch it.

    Args:
        group: "none" is the plain network; "batch_norm" has one before each nonlinearity;
            "noisy_batch_norm" adds a random shift and scale after each; "frozen_below" is the plain
            network of which only the last hidden layer and the output are trained; "frozen_above"
            trains all but these two.
        activation: of the hidden layers; the weights start Xavier-normal.
        lr: of SGD with momentum 0.9, in batches of 64.

    Returns:
        steps: of the looks; the first is 0, before training.
        accuracy: on the 500 test digits at each look, in eval mode.
        train_mode_accuracy: the same in train mode: with the digits' own statistics, and with the
            noise, where there is any.
        shift: (layers, looks - 1), input side first: how far the mean moved since the last look,
            in standard deviations of then (but no less than a millionth), mean over units.
        spread: (layers, looks): standard deviation over the digits, mean over units.
        saturated: (layers, looks): share of values where the nonlinearity's slope is below a
            twentieth of its largest.
        percentiles: (3, looks): 15th, 50th and 85th of one unit of the last hidden layer.
    """
    watched = train_and_watch(
        group,
        seed,
        activation=activation,
        depth=5,
        lr=lr,
        momentum=0.9,
        batch_size=64,
        steps=steps,
        every=every,
    )
    return {
        "steps": list(range(0, every * len(watched.looks), every)),
        "accuracy": watched.accuracy,
        "train_mode_accuracy": watched.train_mode_accuracy,
        **summarize(watched.looks, activation),
    }
