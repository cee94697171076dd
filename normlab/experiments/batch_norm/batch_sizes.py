"""How does a batch norm fare as the batch shrinks from 128 samples to 2?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, train_on_digits


@dataclass(frozen=True)
class Config:
    """An MLP on digits, Adam, the same number of epochs at every batch size and learning rate."""

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")  #: of the hidden layers
    batch_sizes: tuple[Count, ...] = (128, 32, 8, 4, 2)  #: training batch sizes
    #: learning rates of Adam at batch sizes from 32 up; the best one depends on the norm and on the
    #: batch size
    lrs: tuple[Positive, ...] = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
    #: those at batch sizes below 32, which want smaller ones
    small_lrs: tuple[Positive, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
    #: each gives a split, initial weights and an order of batches
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    widths: tuple[Count, ...] = (64, 128, 128, 10)  #: sizes of the MLP
    epochs: Count = 4  #: passes over the 1297 training digits


def run_one(
    config: Config, norm: FeatureNorm, batch_size: int, lr: float, seed: int
) -> dict[str, float | None]:
    """Train one network.

    Measures:
        train_loss: mean over the batches of the last epoch, in train mode; None for a run that
            diverged.
        eval_accuracy: on the 500 test digits, with running statistics.
        eval_loss: cross-entropy there; None if it is not finite.
        batch_accuracy: on the test digits in batches of `batch_size`, with their statistics.
    """
    data = load_digits_split(seed)
    model = make_mlp(config.widths, norm, seed=seed)
    per_epoch = len(data.y_train) // batch_size
    steps = config.epochs * per_epoch
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = train_on_digits(model, data, optimizer, steps=steps, batch_size=batch_size, seed=seed)
    finished = len(losses) == steps and math.isfinite(losses[-1])
    tested = evaluate(model, data.x_test, data.y_test)
    in_batches = evaluate(model, data.x_test, data.y_test, mode="train", batch_size=batch_size)
    return {
        "train_loss": sum(losses[-per_epoch:]) / per_epoch if finished else None,
        "eval_accuracy": tested.accuracy,
        "eval_loss": tested.loss if math.isfinite(tested.loss) else None,
        "batch_accuracy": in_batches.accuracy,
    }


def _points(config: Config) -> list[dict[str, Any]]:
    return [
        {"norm": norm, "batch_size": batch_size, "lr": lr, "seed": seed}
        for norm in config.norms
        for batch_size in config.batch_sizes
        for lr in (config.lrs if batch_size >= 32 else config.small_lrs)
        for seed in config.seeds
    ]


run = Sweep(run_one, _points)
