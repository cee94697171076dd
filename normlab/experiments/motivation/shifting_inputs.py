"""How much do a layer's inputs move during training, and does it matter?

The inputs of each nonlinearity are watched on one fixed set of digits while a deep network
trains: their mean, their spread, the share of saturated units. One group of runs shakes them on
purpose, two hold some layers still.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import make_mlp
from normlab.experiments.recording import rounded
from normlab.experiments.settings import (
    Bounds,
    Count,
    Index,
    Positive,
    Several,
    Share,
    check_at_most,
)
from normlab.experiments.training import evaluate, train_on_digits
from normlab.layers import BatchNorm1d

Group = Literal["none", "batch_norm", "noisy_batch_norm", "frozen_below", "frozen_above"]
GROUPS: tuple[Group, ...] = get_args(Group)
PERCENTILES = (15, 50, 85)
PROBE = 500  # training digits on which inputs are watched


@dataclass(frozen=True)
class Config:
    """A deep sigmoid or tanh network on digits, SGD."""

    #: "none" is the plain network; "batch_norm" has one before each nonlinearity;
    #: "noisy_batch_norm" adds a random shift and scale after each; "frozen_below" is the plain
    #: network of which only the last hidden layer and the output are trained; "frozen_above" trains
    #: all but these two
    groups: tuple[Group, ...] = ("none", "batch_norm", "noisy_batch_norm")
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of split, weights, batches and noise
    activation: Literal["sigmoid", "tanh"] = "sigmoid"  #: "sigmoid" or "tanh"
    gain: Positive = 1.0  #: the initial weights are Xavier-normal times this
    lr: Positive = 0.05  #: learning rate
    momentum: Share = 0.9  #: of SGD
    depth: Several = 5  #: hidden layers
    width: Count = 100  #: units of each
    batch_size: Count = 64  #: digits in a batch
    steps: Count = 300  #: updates
    every: Count = 20  #: steps between two looks
    #: every step the noisy group shifts each unit by up to so much, and scales it by a factor of 1
    #: plus or minus up to half of it
    noise: Annotated[float, Bounds(0, math.nextafter(2, 0), "0 to below 2")] = 1.0
    unit: Index = 0  #: of the last hidden layer, whose percentiles are kept

    def __post_init__(self) -> None:
        check_at_most(self, "every", "steps")
        if self.unit >= self.width:
            raise ValueError(f"unit: got {self.unit}; expected 0 to {self.width - 1}")


class NoisyBatchNorm(BatchNorm1d):
    """Batch norm whose output is shifted and scaled at random, anew in every training step.

    Each unit is shifted by up to `noise` and scaled by 1 plus or minus up to `noise / 2`, both
    uniform; in evaluation it is a plain batch norm.

    Source:
        after the experiment of santurkar2018how, Section 2.1.
    """

    def __init__(self, num_features: int, noise: float) -> None:
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


def make_network(config: Config, group: Group, seed: int) -> nn.Sequential:
    """Build linear → norm → nonlinearity for each hidden layer and a linear output."""
    widths = (64, *[config.width] * config.depth, 10)
    norm: Literal["none", "batch_norm"] = "batch_norm" if "batch" in group else "none"
    model = make_mlp(widths, norm, seed=seed, activation=config.activation)
    initialize_xavier_(model, config.gain, seed=seed)
    if group == "noisy_batch_norm":
        for i, module in enumerate(model):
            if isinstance(module, BatchNorm1d):
                model[i] = NoisyBatchNorm(config.width, config.noise)
    if group == "frozen_below":
        model[: 3 * (config.depth - 1)].requires_grad_(False)
    elif group == "frozen_above":
        model[3 * (config.depth - 1) :].requires_grad_(False)
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


def _rows(values: Tensor) -> tuple[tuple[float, ...], ...]:
    """(looks, layers) as one row for each layer, to four digits, which keeps the records small."""
    return tuple(tuple(map(rounded, row)) for row in values.double().T.tolist())


def summarize(z: Tensor, config: Config) -> dict[str, Any]:
    """What `run_one` measures of the inputs (looks, layers, digits, units)."""
    mean = z.double().mean(2)
    std = (z - mean[:, :, None]).square().mean(2).sqrt()
    moved = (mean[1:] - mean[:-1]).abs() / std[:-1].clamp_min(1e-6)
    one = z[:, -1, :, config.unit].quantile(torch.tensor(PERCENTILES) / 100, dim=1)
    return {
        "shift": _rows(moved.mean(2)),
        "spread": _rows(std.mean(2)),
        "saturated": _rows(is_saturated(z, config.activation).double().mean((2, 3))),
        "percentiles": _rows(one.T),
    }


class Watched(NamedTuple):
    """A training run."""

    losses: list[float]  #: of each step
    looks: Tensor  #: (looks, layers, digits, units), what entered the nonlinearities
    accuracy: tuple[float, ...]  #: on the 500 test digits at each look, in eval mode


def train_and_watch(config: Config, group: Group, seed: int) -> Watched:
    """Train one network and look at it every so many steps; the first look is before training."""
    data = load_digits_split(seed)
    model = make_network(config, group, seed)
    looks: list[Tensor] = []
    accuracy: list[float] = []

    def look(step: int) -> None:
        if step % config.every == 0:
            looks.append(torch.stack(watch(model, data.x_train[:PROBE])))
            accuracy.append(evaluate(model, data.x_test, data.y_test).accuracy)

    trained = [p for p in model.parameters() if p.requires_grad]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the noise
        look(0)
        losses = train_on_digits(
            model,
            data,
            torch.optim.SGD(trained, lr=config.lr, momentum=config.momentum),
            steps=config.steps,
            batch_size=config.batch_size,
            seed=seed,
            after_step=look,
        )
    return Watched(losses, torch.stack(looks), tuple(accuracy))


def run_one(config: Config, group: Group, seed: int) -> dict[str, Any]:
    """Train one network and watch it.

    Measures:
        steps: of the looks; the first is 0, before training.
        accuracy: on the 500 test digits at each look, in eval mode.
        shift: (layers, looks - 1), input side first: how far the mean moved since the last look,
            in standard deviations of then (but no less than a millionth), mean over units.
        spread: (layers, looks): standard deviation over the digits, mean over units.
        saturated: (layers, looks): share of values where the nonlinearity's slope is below a
            twentieth of its largest.
        percentiles: (3, looks): 15th, 50th and 85th of one unit of the last hidden layer.
    """
    watched = train_and_watch(config, group, seed)
    return {
        "steps": tuple(range(0, config.every * len(watched.looks), config.every)),
        "accuracy": watched.accuracy,
        **summarize(watched.looks, config),
    }


run = Sweep(run_one, group="groups", seed="seeds")
