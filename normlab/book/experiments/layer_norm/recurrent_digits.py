"""Does a norm speed up a GRU that reads digits row by row, and from which gain should it start?"""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
from pydantic import PositiveFloat, PositiveInt

from normlab.book.experiments.data.batches import shuffled_batches
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.layer_norm.recurrent import Gru, StepNorm
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.tables import where
from normlab.book.experiments.training import evaluate, fit


@torch.no_grad()
def set_gain(model: Gru, gain: float) -> None:
    """Set every weight of every norm to `gain`."""
    for name, parameter in model.norms.named_parameters():
        if name.endswith("weight"):
            parameter.fill_(gain)


@experiment(
    norm=("none", "layer_norm", "batch_norm"),
    gain=(1.0, 0.1),
    batch_size=(32, 4),
    seed=range(5),
    # a network without a norm has no gain, and runs with 1
    skip=lambda norm, gain: norm == "none" and gain != 1.0,
)
def recurrent_digits(
    norm: StepNorm,
    gain: PositiveFloat,
    batch_size: PositiveInt,
    seed: Seed,
    *,
    steps: Steps = 200,
    lr: PositiveFloat = 2e-3,
) -> dict[str, Any]:
    """Train a GRU that sees one row of 8 pixels per time step, 8 steps in all.

    Args:
        norm: "batch_norm" keeps statistics for each time step.
        gain: weight of the norms at the start; "none" has none and runs once.

    Returns:
        curve: training loss, mean of each window.
        accuracy: on the 500 test digits, in eval mode.
    """
    data = load_digits_split(seed)
    model = Gru(8, 32, 10, norm, seed=seed, steps=8)
    set_gain(model, gain)
    x, y = data.x_train.view(-1, 8, 8), data.y_train
    batches = ((x[i], y[i]) for i in shuffled_batches(len(y), batch_size, seed=seed))
    losses = fit(model, torch.optim.Adam(model.parameters(), lr=lr), batches, steps)
    windows = torch.tensor(losses).view(-1, 10).mean(1)
    tested = evaluate(model, data.x_test.view(-1, 8, 8), data.y_test)
    return {
        "curve": [rounded(v) for v in windows.tolist()],
        "accuracy": rounded(tested.accuracy),
    }


def final_losses(
    table: pd.DataFrame, norm: StepNorm, batch_size: int, gain: float = 1.0
) -> list[float]:
    """Mean training loss of the last two windows, one number for each seed."""
    curves = where(table, norm=norm, batch_size=batch_size, gain=gain).curve
    return [sum(curve[-2:]) / 2 for curve in curves]
