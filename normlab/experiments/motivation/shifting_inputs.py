"""How much do a layer's inputs move during training, and does it matter?

The inputs of each nonlinearity are watched on one fixed set of digits while a deep network
trains: their mean, their spread, the share of saturated units. One arm shakes them on purpose,
one arm holds them still.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from tqdm import tqdm

from normlab.experiments.data.digits import DigitsSplit, load_digits_split
from normlab.experiments.networks.classifiers import make_mlp
from normlab.experiments.settings import Count, Index, NotNegative, Positive, Share, check_settings
from normlab.experiments.training import evaluate, shuffled_batches, train
from normlab.layers import BatchNorm1d

__all__ = ["PERCENTILES", "Config", "NoisyBatchNorm", "Result", "Trace", "run", "run_one"]

Arm = Literal["none", "batch_norm", "noisy_batch_norm", "frozen_below", "frozen_above"]
ARMS: tuple[Arm, ...] = ("none", "batch_norm", "noisy_batch_norm", "frozen_below", "frozen_above")
PERCENTILES = (15, 50, 85)
PROBE = 500  # training digits on which inputs are watched


@dataclass(frozen=True)
class Config:
    """A deep sigmoid or tanh network on digits, SGD.

    Attributes:
        arms: "none" is the plain network; "batch_norm" has one before each nonlinearity;
            "noisy_batch_norm" adds a random shift and scale after each; "frozen_below" is the
            plain network of which only the last hidden layer and the output are trained;
            "frozen_above" trains all but these two.
        seeds: of split, weights, batches and noise.
        activation: "sigmoid" or "tanh".
        gain: the initial weights are Xavier-normal times this.
        lr: learning rate.
        momentum: of SGD.
        depth: hidden layers.
        width: units of each.
        batch_size: digits in a batch.
        steps: updates.
        every: steps between two looks.
        noise: every step the noisy arm shifts each unit by up to so much, and scales it by a
            factor of 1 plus or minus up to half of it.
        unit: of the last hidden layer, whose percentiles are kept.
    """

    arms: tuple[Arm, ...] = ("none", "batch_norm", "noisy_batch_norm")
    seeds: tuple[Index, ...] = (0, 1, 2)
    activation: Literal["sigmoid", "tanh"] = "sigmoid"
    gain: Positive = 1.0
    lr: Positive = 0.05
    momentum: Share = 0.9
    depth: Count = 5
    width: Count = 100
    batch_size: Count = 64
    steps: Count = 300
    every: Count = 20
    noise: NotNegative = 1.0
    unit: Index = 0

    def __post_init__(self) -> None:
        check_settings(self)
        if set(self.arms) - set(ARMS) or not self.arms:
            raise ValueError(f"arms: got {self.arms}; expected some of {ARMS}")
        if self.lr <= 0:
            raise ValueError(f"lr: got {self.lr}; expected a positive learning rate")
        if self.depth < 2:
            raise ValueError(f"depth: got {self.depth}; expected at least 2 hidden layers")
        if not 1 <= self.every <= self.steps:
            raise ValueError(
                f"every: got {self.every} for {self.steps} steps; expected 1 to {self.steps}"
            )
        if not 0 <= self.noise < 2:
            raise ValueError(f"noise: got {self.noise}; expected 0 to below 2, so scales stay > 0")
        if not 0 <= self.unit < self.width:
            raise ValueError(f"unit: got {self.unit}; expected 0 to {self.width - 1}")


@dataclass(frozen=True)
class Trace:
    """What was seen of one network. Lists over layers begin at the input side.

    Attributes:
        arm: which.
        seed: of split, weights, batches and noise.
        steps: of the looks; the first is 0, before training.
        accuracy: on the 500 test digits at each look, in eval mode.
        shift: (layers, looks - 1): how far the mean moved since the last look, in standard
            deviations of then (but no less than a millionth), mean over units.
        spread: (layers, looks): standard deviation over the digits, mean over units.
        saturated: (layers, looks): share of values where the nonlinearity's slope is below a
            twentieth of its largest.
        percentiles: (3, looks): 15th, 50th and 85th of one unit of the last hidden layer.
    """

    arm: str
    seed: int
    steps: tuple[int, ...]
    accuracy: tuple[float, ...]
    shift: tuple[tuple[float, ...], ...]
    spread: tuple[tuple[float, ...], ...]
    saturated: tuple[tuple[float, ...], ...]
    percentiles: tuple[tuple[float, ...], ...]

    def accuracy_at(self, step: int) -> float:
        """Test accuracy at the look of this step."""
        return self.accuracy[self.steps.index(step)]

    def mean_shift(self, layer: int) -> float:
        """Mean over training of the shift of one layer, counted from 0 or backwards from -1."""
        return sum(self.shift[layer]) / len(self.shift[layer])


@dataclass(frozen=True)
class Result:
    """All traces."""

    outcomes: tuple[Trace, ...]

    def of(self, arm: str) -> list[Trace]:
        """The traces of one arm, one for each seed."""
        return [t for t in self.outcomes if t.arm == arm]


class NoisyBatchNorm(BatchNorm1d):
    """Batch norm whose output is shifted and scaled at random, anew in every training step.

    In evaluation it is a plain batch norm.

    Args:
        num_features: C.
        noise: each unit is shifted by up to `noise` and scaled by 1 plus or minus up to
            `noise / 2`, both uniform.

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


def make_network(config: Config, arm: Arm, seed: int) -> nn.Sequential:
    """Build linear → norm → nonlinearity for each hidden layer and a linear output."""
    widths = (64, *[config.width] * config.depth, 10)
    norm: Literal["none", "batch_norm"] = "batch_norm" if "batch" in arm else "none"
    model = make_mlp(widths, norm, seed=seed, activation=config.activation)
    generator = torch.Generator().manual_seed(seed)
    for i, module in enumerate(model):
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight, config.gain, generator=generator)
            nn.init.zeros_(module.bias)
        elif isinstance(module, BatchNorm1d) and arm == "noisy_batch_norm":
            model[i] = NoisyBatchNorm(config.width, config.noise)
    if arm == "frozen_below":
        model[: 3 * (config.depth - 1)].requires_grad_(False)
    elif arm == "frozen_above":
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


def _short(values: Tensor) -> float:
    """Mean of all entries to four digits, which keeps the records small."""
    return float(f"{values.double().mean().item():.4g}")


def run_one(config: Config, arm: Arm, seed: int) -> Trace:
    """Train one network and watch it."""
    data: DigitsSplit = load_digits_split(seed)
    model = make_network(config, arm, seed)
    looks: list[list[Tensor]] = []
    steps: list[int] = []
    accuracy: list[float] = []

    def look(step: int) -> None:
        if step % config.every == 0:
            steps.append(step)
            looks.append(watch(model, data.x_train[:PROBE]))
            accuracy.append(evaluate(model, data.x_test, data.y_test).accuracy)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the noise
        look(0)
        train(
            model,
            data.x_train,
            data.y_train,
            steps=config.steps,
            batches=shuffled_batches(len(data.y_train), config.batch_size, seed=seed),
            optimizer=torch.optim.SGD(
                [p for p in model.parameters() if p.requires_grad],
                lr=config.lr,
                momentum=config.momentum,
            ),
            after_step=look,
        )
    layers = range(config.depth)
    means = [[z[i].double().mean(0) for z in looks] for i in layers]
    spreads = [
        [(z[i].double() - m).square().mean(0).sqrt() for z, m in zip(looks, means[i], strict=True)]
        for i in layers
    ]
    ranks = torch.tensor(PERCENTILES) / 100
    one = torch.stack([z[-1][:, config.unit].quantile(ranks) for z in looks])
    return Trace(
        arm,
        seed,
        tuple(steps),
        tuple(accuracy),
        tuple(
            tuple(
                _short((after - before).abs() / spread.clamp_min(1e-6))
                for before, after, spread in zip(
                    means[i][:-1], means[i][1:], spreads[i][:-1], strict=True
                )
            )
            for i in layers
        ),
        tuple(tuple(map(_short, spreads[i])) for i in layers),
        tuple(tuple(_short(is_saturated(z[i], config.activation)) for z in looks) for i in layers),
        tuple(tuple(map(_short, row)) for row in one.T),
    )


def run(config: Config) -> Result:
    """Train and watch every arm with every seed."""
    runs = [(arm, seed) for arm in config.arms for seed in config.seeds]
    return Result(tuple(run_one(config, *each) for each in tqdm(runs, disable=None)))
