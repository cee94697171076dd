"""Does LayerNorm speed up a GRU that reads digits row by row, and does per-step BatchNorm?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.digits import load_digits_split
from normlab.experiments.recording import record_from_command_line
from normlab.experiments.recurrent import StepNorm, make_gru
from normlab.experiments.training import evaluate, shuffled_batches, train

__all__ = ["Config", "Outcome", "Result", "run"]


@dataclass(frozen=True)
class Config:
    """A GRU that sees one row of 8 pixels per time step, 8 steps in all.

    Attributes:
        norms: arms; "batch_norm" keeps statistics for each time step.
        batch_sizes: training batch sizes.
        seeds: each gives a split, initial weights and an order of batches.
        hidden: units.
        steps: updates.
        lr: of Adam, the same for all.
        window: updates that each recorded loss is averaged over.
    """

    norms: tuple[StepNorm, ...] = ("none", "layer_norm", "batch_norm")
    batch_sizes: tuple[int, ...] = (32, 4)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    hidden: int = 32
    steps: int = 200
    lr: float = 2e-3
    window: int = 10


@dataclass(frozen=True)
class Outcome:
    """One trained network.

    Attributes:
        norm: arm.
        batch_size: samples in a training batch.
        seed: of split, weights and order.
        curve: training loss, mean of each window.
        accuracy: on the 500 test digits, in eval mode.
    """

    norm: str
    batch_size: int
    seed: int
    curve: tuple[float, ...]
    accuracy: float

    @property
    def final_loss(self) -> float:
        """Training loss of the last two windows."""
        return sum(self.curve[-2:]) / 2


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, measure: str, norm: str, batch_size: int) -> list[float]:
        """One number for each seed: `measure` of the arm `norm` at `batch_size`."""
        return [
            getattr(o, measure)
            for o in self.outcomes
            if (o.norm, o.batch_size) == (norm, batch_size)
        ]

    def curves(self, norm: str, batch_size: int) -> list[tuple[float, ...]]:
        """One curve for each seed."""
        return [o.curve for o in self.outcomes if (o.norm, o.batch_size) == (norm, batch_size)]


def run_one(config: Config, norm: StepNorm, batch_size: int, seed: int) -> Outcome:
    """Train one network."""
    data = load_digits_split(seed)
    model = make_gru(8, config.hidden, 10, norm, seed=seed, steps=8)
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
    return Outcome(norm, batch_size, seed, tuple(windows.tolist()), tested.accuracy)


def run(config: Config) -> Result:
    """Train every arm at every batch size with every seed."""
    return Result(
        tuple(
            run_one(config, norm, batch_size, seed)
            for norm in config.norms
            for batch_size in config.batch_sizes
            for seed in config.seeds
        )
    )


if __name__ == "__main__":
    record_from_command_line("recurrent_digits", Config(), run)
