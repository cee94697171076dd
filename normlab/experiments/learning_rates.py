"""Which norms let a network train at a learning rate that breaks it without them?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.digits import load_digits_split
from normlab.experiments.networks import Activation, FeatureNorm, make_mlp
from normlab.experiments.training import evaluate, shuffled_batches, train

__all__ = ["Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """An MLP on digits, plain SGD, every arm at every learning rate.

    Attributes:
        norms: arms.
        lrs: learning rates of SGD without momentum.
        seeds: each gives a split, initial weights and an order of batches.
        widths: sizes of the MLP.
        activation: of the hidden layers.
        batch_size: samples in a batch.
        steps: updates.
        trained_above: test accuracy from which a run counts as trained.
    """

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm", "rms_norm")
    lrs: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    widths: tuple[int, ...] = (64, 128, 128, 10)
    activation: Activation = "relu"
    batch_size: int = 128
    steps: int = 200
    trained_above: float = 0.9


@dataclass(frozen=True)
class Outcome:
    """One trained network.

    Attributes:
        norm: arm.
        lr: learning rate.
        seed: of split, weights and order.
        eval_accuracy: on the 500 test digits; chance is 0.1.
    """

    norm: str
    lr: float
    seed: int
    eval_accuracy: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, norm: str, lr: float) -> list[float]:
        """Test accuracy of `norm` at `lr`, one number for each seed."""
        return [o.eval_accuracy for o in self.outcomes if (o.norm, o.lr) == (norm, lr)]

    def largest_lr(self, norm: str, *, above: float) -> float:
        """Largest learning rate at which every seed of `norm` passes `above`; 0.0 if none."""
        lrs = {o.lr for o in self.outcomes if o.norm == norm}
        return max((lr for lr in lrs if min(self.values(norm, lr)) > above), default=0.0)


def run_one(config: Config, norm: FeatureNorm, lr: float, seed: int) -> Outcome:
    """Train one network."""
    data = load_digits_split(seed)
    model = make_mlp(config.widths, norm, seed=seed, activation=config.activation)
    train(
        model,
        data.x_train,
        data.y_train,
        steps=config.steps,
        batches=shuffled_batches(len(data.y_train), config.batch_size, seed=seed),
        optimizer=torch.optim.SGD(model.parameters(), lr=lr),
    )
    return Outcome(norm, lr, seed, evaluate(model, data.x_test, data.y_test).accuracy)


def run(config: Config) -> Result:
    """Train every arm at every learning rate with every seed."""
    return Result(
        tuple(
            run_one(config, norm, lr, seed)
            for norm in config.norms
            for lr in config.lrs
            for seed in config.seeds
        )
    )
