"""What if a batch is not a random sample, but holds only one or two classes?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import class_batches, evaluate, train

__all__ = ["Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """An MLP on digits whose batches hold only some of the ten classes.

    Attributes:
        norms: arms.
        classes_per_batch: distinct classes in each batch; 10 is close to a shuffled batch.
        seeds: each gives a split, initial weights and an order of batches.
        widths: sizes of the MLP.
        batch_size: samples in each batch; a multiple of every count above.
        steps: of Adam.
        lr: of Adam.
    """

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")
    classes_per_batch: tuple[Count, ...] = (10, 2, 1)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    widths: tuple[Count, ...] = (64, 128, 128, 10)
    batch_size: Count = 40
    steps: Count = 240
    lr: Positive = 1e-3


@dataclass(frozen=True)
class Outcome:
    """One trained network.

    Attributes:
        norm: arm.
        classes_per_batch: distinct classes in each training batch.
        seed: of split, weights and order.
        train_loss: mean over the last 20 steps, in train mode.
        eval_accuracy: on the 500 shuffled test digits, with running statistics.
        batch_accuracy: the same with the statistics of all test digits together.
    """

    norm: str
    classes_per_batch: int
    seed: int
    train_loss: float
    eval_accuracy: float
    batch_accuracy: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, measure: str, norm: str, classes_per_batch: int) -> list[float]:
        """One number for each seed: `measure` of the arm `norm` at `classes_per_batch`."""
        return [
            getattr(o, measure)
            for o in self.outcomes
            if (o.norm, o.classes_per_batch) == (norm, classes_per_batch)
        ]


def run_one(config: Config, norm: FeatureNorm, classes_per_batch: int, seed: int) -> Outcome:
    """Train one network."""
    data = load_digits_split(seed)
    model = make_mlp(config.widths, norm, seed=seed)
    losses = train(
        model,
        data.x_train,
        data.y_train,
        steps=config.steps,
        batches=class_batches(
            data.y_train, config.batch_size, classes_per_batch=classes_per_batch, seed=seed
        ),
        optimizer=torch.optim.Adam(model.parameters(), lr=config.lr),
    )
    tested = evaluate(model, data.x_test, data.y_test)
    mixed = evaluate(model, data.x_test, data.y_test, mode="train")
    return Outcome(
        norm,
        classes_per_batch,
        seed,
        sum(losses[-20:]) / 20,
        tested.accuracy,
        mixed.accuracy,
    )


def run(config: Config) -> Result:
    """Train every arm at every number of classes with every seed."""
    return Result(
        tuple(
            run_one(config, norm, classes, seed)
            for norm in config.norms
            for classes in config.classes_per_batch
            for seed in config.seeds
        )
    )
