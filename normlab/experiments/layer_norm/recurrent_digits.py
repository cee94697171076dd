"""Does a norm speed up a GRU that reads digits row by row, and from which gain should it start?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from normlab.experiments.data.batches import shuffled_batches
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep, grid
from normlab.experiments.layer_norm.recurrent import Gru, StepNorm
from normlab.experiments.recording import rounded
from normlab.experiments.results import Result
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, train


@dataclass(frozen=True)
class Config:
    """A GRU that sees one row of 8 pixels per time step, 8 steps in all."""

    #: "batch_norm" keeps statistics for each time step
    norms: tuple[StepNorm, ...] = ("none", "layer_norm", "batch_norm")
    #: weights of the norms at the start; "none" has none and runs once
    gains: tuple[Positive, ...] = (1.0, 0.1)
    batch_sizes: tuple[Count, ...] = (32, 4)  #: training batch sizes
    #: each gives a split, initial weights and an order of batches
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    hidden: Count = 32  #: units
    steps: Count = 200  #: updates
    lr: Positive = 2e-3  #: of Adam, the same for all
    window: Count = 10  #: updates that each recorded loss is averaged over


def _points(config: Config) -> Iterator[dict[str, Any]]:
    for norm in config.norms:
        gains = (1.0,) if norm == "none" else config.gains
        yield from grid(norm=[norm], gain=gains, batch_size=config.batch_sizes, seed=config.seeds)


@torch.no_grad()
def set_gain(model: Gru, gain: float) -> None:
    """Set every weight of every norm to `gain`."""
    for name, parameter in model.norms.named_parameters():
        if name.endswith("weight"):
            parameter.fill_(gain)


def run_one(
    config: Config, norm: StepNorm, gain: float, batch_size: int, seed: int
) -> dict[str, Any]:
    """Train one network.

    Measures:
        curve: training loss, mean of each window.
        accuracy: on the 500 test digits, in eval mode.
    """
    data = load_digits_split(seed)
    model = Gru(8, config.hidden, 10, norm, seed=seed, steps=8)
    set_gain(model, gain)
    losses = train(
        model,
        data.x_train.view(-1, 8, 8),
        data.y_train,
        steps=config.steps,
        batches=shuffled_batches(len(data.y_train), batch_size, seed=seed),
        optimizer=torch.optim.Adam(model.parameters(), lr=config.lr),
    )
    windows = torch.tensor(losses).view(-1, config.window).mean(1)
    tested = evaluate(model, data.x_test.view(-1, 8, 8), data.y_test)
    return {
        "curve": tuple(rounded(v) for v in windows.tolist()),
        "accuracy": rounded(tested.accuracy),
    }


run = Sweep(run_one, _points)


def final_losses(result: Result, norm: StepNorm, batch_size: int, gain: float = 1.0) -> list[float]:
    """Mean training loss of the last two windows, one number for each seed."""
    curves = result.values("curve", norm=norm, batch_size=batch_size, gain=gain)
    return [sum(curve[-2:]) / 2 for curve in curves]
