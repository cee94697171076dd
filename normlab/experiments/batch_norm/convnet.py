"""Does a batch norm train a small convolutional network faster, and is it the batch?"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import torch
from torch import nn

from normlab.experiments.batch_norm.noise_and_gap import with_ghosts
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.networks.classifiers import ImageNorm, Init, make_convnet
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, shuffled_batches, train

__all__ = [
    "ARMS",
    "GHOSTS",
    "Arm",
    "Config",
    "Outcome",
    "Result",
    "differing_share",
    "run",
    "run_one",
]


@dataclass(frozen=True)
class Arm:
    """One network.

    Attributes:
        norm: of each convolution.
        init: of the weights.
        ghost_size: samples of a training batch that share statistics; None for all.
    """

    norm: ImageNorm
    init: Init = "default"
    ghost_size: int | None = None

    def make_model(self, channels: tuple[int, ...], seed: int) -> nn.Sequential:
        """The network at its initial weights."""
        model = make_convnet(channels, self.norm, seed=seed, init=self.init)
        return model if self.ghost_size is None else with_ghosts(model, self.ghost_size)


ARMS: dict[str, Arm] = {
    "none": Arm("none"),
    "none, He init": Arm("none", "he"),
    "batch_norm": Arm("batch_norm"),
    "group_norm": Arm("group_norm"),
    "layer_norm": Arm("layer_norm"),
}
GHOSTS = {f"ghosts of {size}": Arm("batch_norm", ghost_size=size) for size in (32, 8, 4, 2)}


@dataclass(frozen=True)
class Config:
    """Four convolutions on digits, plain SGD, every arm at every learning rate.

    Attributes:
        arms: keys of :data:`ARMS` or :data:`GHOSTS`.
        lrs: learning rates of SGD without momentum.
        batches: pairs of batch size and number of steps.
        seeds: each gives a split, initial weights and an order of batches.
        channels: of the convolutions, input first.
        solved_below: a run is solved once the mean loss of ten steps falls below this.
    """

    arms: tuple[str, ...] = tuple(ARMS)
    lrs: tuple[Positive, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    batches: tuple[tuple[Count, Count], ...] = ((128, 120), (4, 600))
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    channels: tuple[Count, ...] = (1, 16, 16, 32, 32)
    solved_below: Positive = 0.5


@dataclass(frozen=True)
class Outcome:
    """One trained network.

    Attributes:
        arm: key of :data:`ARMS`.
        batch_size: samples in a training batch.
        lr: learning rate.
        seed: of split, weights and order.
        train_loss: mean of the last 20 steps, in train mode; None for a run that diverged.
        steps_to_solve: first step whose last ten losses average below `solved_below`, or None.
        eval_accuracy: on the 500 test digits, with running statistics.
    """

    arm: str
    batch_size: int
    lr: float
    seed: int
    train_loss: float | None
    steps_to_solve: int | None
    eval_accuracy: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def of(self, arm: str, batch_size: int, lr: float) -> list[Outcome]:
        """Outcomes of one setting, one for each seed."""
        return [o for o in self.outcomes if (o.arm, o.batch_size, o.lr) == (arm, batch_size, lr)]

    def median_loss(self, arm: str, batch_size: int, lr: float) -> float:
        """Median over seeds of the final training loss; a diverged run counts as infinite."""
        return statistics.median(_or_infinite(o.train_loss) for o in self.of(arm, batch_size, lr))

    def fastest(self, arm: str, batch_size: int) -> tuple[float, float]:
        """The learning rate that solves the task in the fewest steps, and their number.

        The number is the median over seeds; a run that never gets there counts as infinite.
        """
        lrs = sorted({o.lr for o in self.outcomes if (o.arm, o.batch_size) == (arm, batch_size)})
        steps = [
            statistics.median(_or_infinite(o.steps_to_solve) for o in self.of(arm, batch_size, lr))
            for lr in lrs
        ]
        best = min(steps)
        return lrs[steps.index(best)], best


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


def run_one(config: Config, arm: str, batch_size: int, steps: int, lr: float, seed: int) -> Outcome:
    """Train one network."""
    data = load_digits_split(seed).as_images()
    model = (ARMS | GHOSTS)[arm].make_model(config.channels, seed)
    losses = train(
        model,
        data.x_train,
        data.y_train,
        steps=steps,
        batches=shuffled_batches(len(data.y_train), batch_size, seed=seed),
        optimizer=torch.optim.SGD(model.parameters(), lr=lr),
    )
    solved = next(
        (
            i
            for i in range(10, len(losses) + 1)
            if sum(losses[i - 10 : i]) < 10 * config.solved_below
        ),
        None,
    )
    finished = len(losses) == steps and math.isfinite(losses[-1])
    return Outcome(
        arm,
        batch_size,
        lr,
        seed,
        sum(losses[-20:]) / 20 if finished else None,
        solved,
        evaluate(model, data.x_test, data.y_test).accuracy,
    )


@torch.no_grad()
def differing_share(config: Config, arm: str, seed: int) -> float:
    """How much of what reaches the output layer differs between samples, before any training.

    Returns:
        Variance over 128 training digits of the pooled features, divided by their mean square;
        both averaged over channels. 0: every digit gives the same features.
    """
    data = load_digits_split(seed).as_images()
    model = ARMS[arm].make_model(config.channels, seed)
    pooled = model[:-1](data.x_train[:128]).double()  # (128, channels)
    differing = (pooled - pooled.mean(0)).square().mean()
    return (differing / pooled.square().mean()).item()


def run(config: Config) -> Result:
    """Train every arm with every batch size, learning rate and seed."""
    return Result(
        tuple(
            run_one(config, arm, batch_size, steps, lr, seed)
            for arm in config.arms
            for batch_size, steps in config.batches
            for lr in config.lrs
            for seed in config.seeds
        )
    )
