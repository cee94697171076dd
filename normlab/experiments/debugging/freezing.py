"""What moves in a frozen network with batch norm?"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.experiments.data.batches import shuffled_batches
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import make_mlp
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, minimize, train_on_digits
from normlab.layers import BatchNorm1d

Freeze = Literal[
    "requires_grad=False", "eval()", "both", "both, then train()", "both, in every epoch"
]


@dataclass(frozen=True)
class Config:
    """A network trained on digits; then its last layer alone is to learn the negatives."""

    seeds: tuple[Index, ...] = (0, 1, 2)  #: of split, weights and batches
    widths: tuple[Count, ...] = (64, 64, 64, 10)  #: sizes of the MLP
    steps: Count = 150  #: of the training on digits
    #: of the training on negatives; each begins with `model.train()` where the way to freeze allows
    #: for it
    epochs: Count = 2
    steps_per_epoch: Count = 20  #: of the training on negatives
    batch_size: Count = 32  #: samples in a batch
    lr: Positive = 1e-2  #: of Adam


def _eval_norms(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, BatchNorm1d):
            module.eval()


def _fine_tune(model: nn.Sequential, freeze: Freeze, x: Tensor, y: Tensor, config: Config) -> None:
    """Train on new data; only what `freeze` leaves free can move."""
    below = model[:-1]
    if freeze != "eval()":
        below.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=config.lr)
    batches = shuffled_batches(len(y), config.batch_size, seed=1)
    model.train()
    if freeze != "requires_grad=False":
        _eval_norms(below)
    for _ in range(config.epochs):
        if freeze in ("both, then train()", "both, in every epoch"):
            model.train()
        if freeze == "both, in every epoch":
            _eval_norms(below)
        minimize(
            lambda batch: cross_entropy(model(x[batch]), y[batch]),
            batches,
            optimizer,
            steps=config.steps_per_epoch,
        )


@torch.no_grad()
def _features(model: nn.Sequential, x: Tensor) -> Tensor:
    features: Tensor = copy.deepcopy(model[:-1]).eval()(x)
    return features


def _moved(before: dict[str, Tensor], after: dict[str, Tensor], *, running: bool) -> float:
    names = [k for k in before if ("running" in k) is running and before[k].is_floating_point()]
    return max(float((after[k] - before[k]).abs().max()) for k in names)


def run_one(config: Config, seed: int) -> list[dict[str, Any]]:
    """Train one network, and fine-tune a copy with everything below the last layer frozen.

    Measures:
        freeze: the way.
        parameters_moved: largest change of a parameter below the last layer.
        statistics_moved: largest change of a running mean or variance.
        features_moved: rms change of what the last layer receives for the old test digits, in
            evaluation mode, over the rms before.
        accuracy_before: on the old test digits.
        accuracy_after: of the old last layer on the new features, so that only what was to be
            frozen counts.
    """
    data = load_digits_split(seed)
    trained = make_mlp(config.widths, "batch_norm", seed=seed)
    adam, size = torch.optim.Adam(trained.parameters(), lr=1e-3), config.batch_size
    train_on_digits(trained, data, adam, steps=config.steps, batch_size=size, seed=seed)
    before, old = copy.deepcopy(trained[:-1].state_dict()), _features(trained, data.x_test)
    accuracy = evaluate(trained, data.x_test, data.y_test).accuracy
    found = []
    for freeze in get_args(Freeze):
        model = copy.deepcopy(trained)
        _fine_tune(model, freeze, 1 - data.x_train, data.y_train, config)
        after, new = model[:-1].state_dict(), _features(model, data.x_test)
        right = trained[-1](new).argmax(-1) == data.y_test
        found.append(
            {
                "freeze": freeze,
                "parameters_moved": _moved(before, after, running=False),
                "statistics_moved": _moved(before, after, running=True),
                "features_moved": float((new - old).norm() / old.norm()),
                "accuracy_before": accuracy,
                "accuracy_after": float(right.float().mean()),
            }
        )
    return found


run = Sweep(run_one, seed="seeds")
