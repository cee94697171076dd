"""How does a batch norm fare as the batch shrinks from 128 samples to 2?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.digits import load_digits_split
from normlab.experiments.networks import FeatureNorm, make_mlp
from normlab.experiments.training import evaluate, shuffled_batches, train

__all__ = ["Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """An MLP on digits, trained by Adam for the same number of epochs at every batch size.

    Attributes:
        norms: arms.
        batch_sizes: training batch sizes.
        seeds: each gives a split, initial weights and an order of batches.
        widths: sizes of the MLP.
        epochs: passes over the 1297 training digits.
        lr: of Adam, the same for all.
    """

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")
    batch_sizes: tuple[int, ...] = (128, 32, 8, 4, 2)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    widths: tuple[int, ...] = (64, 128, 128, 10)
    epochs: int = 4
    lr: float = 1e-3


@dataclass(frozen=True)
class Outcome:
    """One trained network.

    Attributes:
        norm: arm.
        batch_size: samples in a training batch.
        seed: of split, weights and order.
        train_loss: mean over the batches of the last epoch, in train mode.
        eval_accuracy: on the 500 test digits, with running statistics.
        eval_loss: cross-entropy there.
        batch_accuracy: on the test digits in batches of `batch_size`, with their statistics.
    """

    norm: str
    batch_size: int
    seed: int
    train_loss: float
    eval_accuracy: float
    eval_loss: float
    batch_accuracy: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, measure: str, norm: str, batch_size: int) -> list[float]:
        """One number for each seed: `measure` of the arm `norm` at `batch_size`."""
        return [
            getattr(o, measure)
            for o in self.outcomes
            if (o.norm, o.batch_size) == (norm, batch_size)
        ]


def run_one(config: Config, norm: FeatureNorm, batch_size: int, seed: int) -> Outcome:
    """Train one network."""
    data = load_digits_split(seed)
    model = make_mlp(config.widths, norm, seed=seed)
    per_epoch = len(data.y_train) // batch_size
    losses = train(
        model,
        data.x_train,
        data.y_train,
        steps=config.epochs * per_epoch,
        batches=shuffled_batches(len(data.y_train), batch_size, seed=seed),
        optimizer=torch.optim.Adam(model.parameters(), lr=config.lr),
    )
    tested = evaluate(model, data.x_test, data.y_test)
    in_batches = evaluate(model, data.x_test, data.y_test, mode="train", batch_size=batch_size)
    return Outcome(
        norm,
        batch_size,
        seed,
        sum(losses[-per_epoch:]) / per_epoch,
        tested.accuracy,
        tested.loss,
        in_batches.accuracy,
    )


def run(config: Config) -> Result:
    """Train every arm at every batch size with every seed."""
    return Result(
        tuple(
            run_one(config, norm, batch_size, seed)
            for norm in config.norms
            for batch_size in config.batch_sizes
            for seed in config.seeds
        )
    )
