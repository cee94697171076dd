"""Which norms let a network train at a learning rate that breaks it without them?"""

from __future__ import annotations

import pandas as pd
import torch
from pydantic import PositiveFloat

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import evaluate, fit


@experiment(
    norm=("none", "batch_norm", "layer_norm", "rms_norm"),
    lr=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    seed=range(5),
)
def learning_rates(
    norm: FeatureNorm, lr: PositiveFloat, seed: Seed, *, steps: Steps = 200
) -> dict[str, float]:
    """Train an MLP on digits with plain SGD.

    Returns:
        eval_accuracy: on the 500 test digits; chance is 0.1.
    """
    digits = load_digits_split(seed)
    model = make_mlp((64, 128, 128, 10), norm, seed=seed)
    sgd = torch.optim.SGD(model.parameters(), lr=lr)
    fit(model, sgd, digits.batches(128, seed), steps)
    return {"eval_accuracy": evaluate(model, digits.x_test, digits.y_test).accuracy}


def largest_lr(table: pd.DataFrame, norm: str, *, above: float) -> float:
    """Largest learning rate at which every seed of `norm` passes `above`; 0.0 if none."""
    worst = table[table.norm == norm].groupby("lr").eval_accuracy.min()
    return float(worst[worst > above].index.max()) if (worst > above).any() else 0.0
