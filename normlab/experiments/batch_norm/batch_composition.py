"""What if a batch is not a random sample, but holds only one or two classes?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.data.batches import class_batches
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, train


@dataclass(frozen=True)
class Config:
    """An MLP on digits whose batches hold only some of the ten classes."""

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")  #: of the hidden layers
    #: distinct classes in each batch; 10 is close to a shuffled batch
    classes_per_batch: tuple[Count, ...] = (10, 2, 1)
    #: each gives a split, initial weights and an order of batches
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    widths: tuple[Count, ...] = (64, 128, 128, 10)  #: sizes of the MLP
    batch_size: Count = 40  #: samples in each batch; a multiple of every count above
    steps: Count = 240  #: of Adam
    lr: Positive = 1e-3  #: of Adam


def run_one(
    config: Config, norm: FeatureNorm, classes_per_batch: int, seed: int
) -> dict[str, float]:
    """Train one network.

    Measures:
        train_loss: mean over the last 20 steps, in train mode.
        eval_accuracy: on the 500 shuffled test digits, with running statistics.
        batch_accuracy: the same with the statistics of all test digits together.
        class_accuracy: the same with the test digits of one class at a time as a batch.
    """
    data = load_digits_split(seed)
    model = make_mlp(config.widths, norm, seed=seed)
    x, y = data.x_train, data.y_train
    adam = torch.optim.Adam(model.parameters(), lr=config.lr)
    batches = class_batches(y, config.batch_size, classes_per_batch=classes_per_batch, seed=seed)
    losses = train(model, x, y, steps=config.steps, batches=batches, optimizer=adam)
    x, y = data.x_test, data.y_test
    right = 0.0
    for label in y.unique():
        of_one = y == label
        alike = evaluate(model, x[of_one], y[of_one], mode="train")
        right += alike.accuracy * of_one.sum().item()
    return {
        "train_loss": sum(losses[-20:]) / 20,
        "eval_accuracy": evaluate(model, x, y).accuracy,
        "batch_accuracy": evaluate(model, x, y, mode="train").accuracy,
        "class_accuracy": right / len(y),
    }


run = Sweep(run_one, norm="norms", classes_per_batch="classes_per_batch", seed="seeds")
