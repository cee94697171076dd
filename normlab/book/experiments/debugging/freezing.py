"""What moves in a frozen network with batch norm?"""

from __future__ import annotations

import copy
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.book.experiments.data.batches import shuffled_batches
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.layers import BatchNorm1d

Freeze = Literal[
    "requires_grad=False", "eval()", "both", "both, then train()", "both, in every epoch"
]


def _eval_norms(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, BatchNorm1d):
            module.eval()


def _fine_tune(model: nn.Sequential, freeze: Freeze, x: Tensor, y: Tensor) -> None:
    """Train on new data; only what `freeze` leaves free can move."""
    below, head = model[:-1], model[-1]
    if freeze != "eval()":
        below.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    batches = shuffled_batches(len(y), 32, seed=1)

    def loss_of(head: nn.Module, batch: Tensor) -> Tensor:
        return cross_entropy(head(below(x[batch])), y[batch])

    model.train()
    if freeze != "requires_grad=False":
        _eval_norms(below)
    for _ in range(2):
        if freeze in ("both, then train()", "both, in every epoch"):
            model.train()
        if freeze == "both, in every epoch":
            _eval_norms(below)
        # `fit` puts what it is given into train mode: the head, which has no norm
        fit(head, optimizer, batches, 20, loss_of=loss_of)


@torch.no_grad()
def _features(model: nn.Sequential, x: Tensor) -> Tensor:
    features: Tensor = copy.deepcopy(model[:-1]).eval()(x)
    return features


def _moved(before: dict[str, Tensor], after: dict[str, Tensor], *, running: bool) -> float:
    names = [k for k in before if ("running" in k) is running and before[k].is_floating_point()]
    return max(float((after[k] - before[k]).abs().max()) for k in names)


@experiment(seed=range(3))
def freezing(seed: Seed) -> list[dict[str, Any]]:
    """Train an MLP on digits; then the last layer of a copy alone is to learn the negatives.

    Returns:
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
    trained = make_mlp((64, 64, 64, 10), "batch_norm", seed=seed)
    fit(trained, torch.optim.Adam(trained.parameters(), lr=1e-3), data.batches(32, seed), 150)
    before, old = copy.deepcopy(trained[:-1].state_dict()), _features(trained, data.x_test)
    accuracy = evaluate(trained, data.x_test, data.y_test).accuracy
    found = []
    for freeze in get_args(Freeze):
        model = copy.deepcopy(trained)
        _fine_tune(model, freeze, 1 - data.x_train, data.y_train)
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
