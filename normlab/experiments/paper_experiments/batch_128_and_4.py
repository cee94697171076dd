"""The multilayer perceptron of the layer norm paper at its two batch sizes, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from tqdm import tqdm

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, shuffled_batches, train
from normlab.layers import BatchNorm1d

__all__ = ["ARMS", "Arm", "Config", "Outcome", "Result", "make_classifier", "run", "run_one"]

Arm = Literal["none", "layer_norm", "batch_norm", "batch norm, logits too"]
ARMS: dict[Arm, FeatureNorm] = {
    "none": "none",
    "layer_norm": "layer_norm",
    "batch_norm": "batch_norm",
    "batch norm, logits too": "batch_norm",
}


@dataclass(frozen=True)
class Config:
    """An MLP on digits, trained by Adam.

    Attributes:
        arms: keys of :data:`ARMS`.
        batch_sizes: training batch sizes.
        seeds: each gives a split, initial weights and an order of batches.
        widths: sizes of the MLP.
        epochs: passes over the 1297 training digits.
        lr: of Adam, the same for all.
    """

    arms: tuple[Arm, ...] = ("none", "layer_norm", "batch_norm", "batch norm, logits too")
    batch_sizes: tuple[Count, ...] = (128, 4)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    widths: tuple[Count, ...] = (64, 128, 128, 10)
    epochs: Count = 12
    lr: Positive = 1e-3


@dataclass(frozen=True)
class Outcome:
    """One trained network, measured in eval mode after each epoch.

    Attributes:
        arm: key of :data:`ARMS`.
        batch_size: samples in a training batch.
        seed: of split, weights and order.
        train_losses: cross-entropy on all training digits.
        test_errors: share of the 500 test digits that are wrong.
    """

    arm: str
    batch_size: int
    seed: int
    train_losses: tuple[float, ...]
    test_errors: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def curves(self, measure: str, arm: str, batch_size: int) -> list[tuple[float, ...]]:
        """`measure` of each seed, one number for each epoch."""
        return [
            getattr(o, measure) for o in self.outcomes if (o.arm, o.batch_size) == (arm, batch_size)
        ]

    def after(self, epoch: int, measure: str, arm: str, batch_size: int) -> list[float]:
        """`measure` of each seed after this epoch, counted from 1."""
        return [curve[epoch - 1] for curve in self.curves(measure, arm, batch_size)]


def make_classifier(config: Config, arm: Arm, *, seed: int) -> nn.Sequential:
    """Build the MLP of one arm; one seed gives every arm the same initial weights.

    Raises:
        ValueError: the arm is unknown.

    Source:
        ba2016layer, Section 6.6: layer norm on all layers but the last, batch norm on all.
    """
    if arm not in ARMS:
        raise ValueError(f"arm: got {arm!r}; expected one of {', '.join(ARMS)}")
    model = make_mlp(config.widths, ARMS[arm], seed=seed)
    if arm == "batch norm, logits too":
        model.append(BatchNorm1d(config.widths[-1]))
    return model


def run_one(config: Config, arm: Arm, batch_size: int, seed: int) -> Outcome:
    """Train one network."""
    data = load_digits_split(seed)
    model = make_classifier(config, arm, seed=seed)
    per_epoch = len(data.y_train) // batch_size
    train_losses: list[float] = []
    test_errors: list[float] = []

    def look(step: int) -> None:
        if step % per_epoch == 0:
            train_losses.append(rounded(evaluate(model, data.x_train, data.y_train).loss))
            tested = evaluate(model, data.x_test, data.y_test)
            test_errors.append(rounded(1 - tested.accuracy))

    train(
        model,
        data.x_train,
        data.y_train,
        steps=config.epochs * per_epoch,
        batches=shuffled_batches(len(data.y_train), batch_size, seed=seed),
        optimizer=torch.optim.Adam(model.parameters(), lr=config.lr),
        after_step=look,
    )
    return Outcome(arm, batch_size, seed, tuple(train_losses), tuple(test_errors))


def run(config: Config) -> Result:
    """Train every arm at every batch size with every seed."""
    jobs = [(a, n, s) for a in config.arms for n in config.batch_sizes for s in config.seeds]
    return Result(tuple(run_one(config, *job) for job in tqdm(jobs, disable=None)))
