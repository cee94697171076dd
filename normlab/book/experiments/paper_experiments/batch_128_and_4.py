"""The multilayer perceptron of the layer norm paper at its two batch sizes, epoch by epoch."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.layers import BatchNorm1d

Group = Literal["none", "layer_norm", "batch_norm", "batch norm, logits too"]
GROUPS: dict[Group, FeatureNorm] = {
    "none": "none",
    "layer_norm": "layer_norm",
    "batch_norm": "batch_norm",
    "batch norm, logits too": "batch_norm",
}


# learning rates of Adam by batch size; in one epoch, batches of 4 make 32 times as many updates, so
# their rates are smaller
RATES = {128: (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), 4: (3e-4, 1e-3, 3e-3, 1e-2)}


def make_classifier(group: Group, *, seed: int) -> nn.Sequential:
    """Build the MLP of one group; one seed gives every group the same initial weights.

    Source:
        ba2016layer, Section 6.6: layer norm on all layers but the last, batch norm on all.
    """
    model = make_mlp((64, 128, 128, 10), GROUPS[group], seed=seed)
    if group == "batch norm, logits too":
        model.append(BatchNorm1d(10))
    return model


@experiment(
    group=GROUPS,
    batch_size=RATES,
    lr=(3e-4, *RATES[128]),
    seed=range(5),
    skip=lambda batch_size, lr: lr not in RATES.get(batch_size, [lr]),
)
def batch_128_and_4(
    group: Group,
    batch_size: PositiveInt,
    lr: PositiveFloat,
    seed: Seed,
    *,
    epochs: PositiveInt = 12,
) -> dict[str, list[float]]:
    """Train an MLP on digits by Adam, measured in eval mode after each epoch.

    Args:
        group: norm of the hidden layers, and of the logits.

    Returns:
        train_losses: cross-entropy on all training digits.
        test_errors: share of the 500 test digits that are wrong.
    """
    data = load_digits_split(seed)
    model = make_classifier(group, seed=seed)
    per_epoch = len(data.y_train) // batch_size
    train_losses: list[float] = []
    test_errors: list[float] = []

    def look(step: int) -> None:
        if step % per_epoch == 0:
            train_losses.append(rounded(evaluate(model, data.x_train, data.y_train).loss))
            tested = evaluate(model, data.x_test, data.y_test)
            test_errors.append(rounded(1 - tested.accuracy))

    adam = torch.optim.Adam(model.parameters(), lr=lr)
    batches = data.batches(batch_size, seed)
    fit(model, adam, batches, epochs * per_epoch, after_step=look)
    return {"train_losses": train_losses, "test_errors": test_errors}
