"""How far off may the initial weights be, with and without a norm?"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.motivation.shifting_inputs import initialize_xavier_
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import evaluate, fit


@experiment(
    norm=("none", "batch_norm", "layer_norm"),
    scale=(0.1, 0.3, 1.0, 3.0, 10.0),
    lr=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    seed=range(5),
)
def initial_scale(
    norm: FeatureNorm,
    scale: PositiveFloat,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Steps = 100,
) -> dict[str, float]:
    """A deep tanh network on digits whose initial weights are too small, right or too large.

    Args:
        scale: factors of Xavier's initial weights.

    Returns:
        train_accuracy: on the training digits in eval mode, by which a rate can be chosen.
        eval_accuracy: on the 500 test digits; chance is 0.1.
    """
    data = load_digits_split(seed)
    model = make_mlp((64, *[100] * 6, 10), norm, seed=seed, activation="tanh")
    initialize_xavier_(model, scale, seed=seed)
    sgd = torch.optim.SGD(model.parameters(), lr=lr)
    fit(model, sgd, data.batches(64, seed), steps)
    return {
        "train_accuracy": evaluate(model, data.x_train, data.y_train).accuracy,
        "eval_accuracy": evaluate(model, data.x_test, data.y_test).accuracy,
    }
