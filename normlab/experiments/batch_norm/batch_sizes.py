"""How does a batch norm fare as the batch shrinks from 128 samples to 2?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.sweep import Sweep
from normlab.experiments.training import evaluate, train_on_digits


@dataclass(frozen=True)
class Config:
    """An MLP on digits, trained by Adam for the same number of epochs at every batch size.

    Attributes:
        norms: of the hidden layers.
        batch_sizes: training batch sizes.
        seeds: each gives a split, initial weights and an order of batches.
        widths: sizes of the MLP.
        epochs: passes over the 1297 training digits.
        lr: of Adam, the same for all.
    """

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")
    batch_sizes: tuple[Count, ...] = (128, 32, 8, 4, 2)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    widths: tuple[Count, ...] = (64, 128, 128, 10)
    epochs: Count = 4
    lr: Positive = 1e-3


def run_one(config: Config, norm: FeatureNorm, batch_size: int, seed: int) -> dict[str, float]:
    """Train one network.

    Measures:
        train_loss: mean over the batches of the last epoch, in train mode.
        eval_accuracy: on the 500 test digits, with running statistics.
        eval_loss: cross-entropy there.
        batch_accuracy: on the test digits in batches of `batch_size`, with their statistics.
    """
    data = load_digits_split(seed)
    model = make_mlp(config.widths, norm, seed=seed)
    per_epoch = len(data.y_train) // batch_size
    steps = config.epochs * per_epoch
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    losses = train_on_digits(model, data, optimizer, steps=steps, batch_size=batch_size, seed=seed)
    tested = evaluate(model, data.x_test, data.y_test)
    in_batches = evaluate(model, data.x_test, data.y_test, mode="train", batch_size=batch_size)
    return {
        "train_loss": sum(losses[-per_epoch:]) / per_epoch,
        "eval_accuracy": tested.accuracy,
        "eval_loss": tested.loss,
        "batch_accuracy": in_batches.accuracy,
    }


run = Sweep(run_one, norm="norms", batch_size="batch_sizes", seed="seeds")
