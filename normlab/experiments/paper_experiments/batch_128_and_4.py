"""The multilayer perceptron of the layer norm paper at its two batch sizes, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep, grid
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, train_on_digits
from normlab.layers import BatchNorm1d

Group = Literal["none", "layer_norm", "batch_norm", "batch norm, logits too"]
GROUPS: dict[Group, FeatureNorm] = {
    "none": "none",
    "layer_norm": "layer_norm",
    "batch_norm": "batch_norm",
    "batch norm, logits too": "batch_norm",
}


@dataclass(frozen=True)
class Config:
    """An MLP on digits, trained by Adam, every group at every learning rate of a batch size."""

    groups: tuple[Group, ...] = tuple(GROUPS)  #: keys of :data:`GROUPS`
    #: pairs of a training batch size and a learning rate of Adam. In one epoch, batches of 4 make
    #: 32 times as many updates, and their rates are smaller.
    batches: tuple[tuple[Count, Positive], ...] = (
        *((128, lr) for lr in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)),
        *((4, lr) for lr in (3e-4, 1e-3, 3e-3)),
    )
    #: each gives a split, initial weights and an order of batches
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    widths: tuple[Count, ...] = (64, 128, 128, 10)  #: sizes of the MLP
    epochs: Count = 12  #: passes over the 1297 training digits


def make_classifier(config: Config, group: Group, *, seed: int) -> nn.Sequential:
    """Build the MLP of one group; one seed gives every group the same initial weights.

    Source:
        ba2016layer, Section 6.6: layer norm on all layers but the last, batch norm on all.
    """
    if group not in GROUPS:
        raise ValueError(f"group: got {group!r}; expected one of {', '.join(GROUPS)}")
    model = make_mlp(config.widths, GROUPS[group], seed=seed)
    if group == "batch norm, logits too":
        model.append(BatchNorm1d(config.widths[-1]))
    return model


def run_one(
    config: Config, group: Group, batch_size: int, lr: float, seed: int
) -> dict[str, list[float]]:
    """Train one network, measured in eval mode after each epoch.

    Measures:
        train_losses: cross-entropy on all training digits.
        test_errors: share of the 500 test digits that are wrong.
    """
    data = load_digits_split(seed)
    model = make_classifier(config, group, seed=seed)
    per_epoch = len(data.y_train) // batch_size
    train_losses: list[float] = []
    test_errors: list[float] = []

    def look(step: int) -> None:
        if step % per_epoch == 0:
            train_losses.append(rounded(evaluate(model, data.x_train, data.y_train).loss))
            tested = evaluate(model, data.x_test, data.y_test)
            test_errors.append(rounded(1 - tested.accuracy))

    train_on_digits(
        model,
        data,
        torch.optim.Adam(model.parameters(), lr=lr),
        steps=config.epochs * per_epoch,
        batch_size=batch_size,
        seed=seed,
        after_step=look,
    )
    return {"train_losses": train_losses, "test_errors": test_errors}


def _points(config: Config) -> Iterator[dict[str, Any]]:
    for group in config.groups:
        for batch_size, lr in config.batches:
            yield from grid(group=[group], batch_size=[batch_size], lr=[lr], seed=config.seeds)


run = Sweep(run_one, _points)
