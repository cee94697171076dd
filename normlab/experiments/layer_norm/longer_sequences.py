"""Does a recurrent network with LayerNorm work on longer sequences than it was trained on?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from normlab.experiments.layer_norm.recurrent import StepNorm, make_gru
from normlab.experiments.settings import Count, Index, Positive

__all__ = ["GUESS", "Config", "Outcome", "Result", "adding_problem", "run"]

GUESS = 1 / 6  # squared error of always answering 1, the mean of a sum of two uniform numbers


@dataclass(frozen=True)
class Config:
    """The adding problem: two numbers of a sequence are marked; answer their sum.

    Attributes:
        norms: arms; "batch_norm" reuses the statistics of its last step beyond `length`.
        seeds: of weights and data.
        length: time steps in training.
        test_lengths: time steps in testing.
        hidden: units.
        steps: updates.
        batch_size: sequences in a batch.
        lr: of Adam.
        test_size: sequences per test length.
    """

    norms: tuple[StepNorm, ...] = ("none", "layer_norm", "batch_norm")
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    length: Count = 30
    test_lengths: tuple[Count, ...] = (30, 60, 120)
    hidden: Count = 32
    steps: Count = 500
    batch_size: Count = 32
    lr: Positive = 5e-3
    test_size: Count = 512


@dataclass(frozen=True)
class Outcome:
    """One trained network.

    Attributes:
        norm: arm.
        seed: of weights and data.
        early_loss: training loss, mean over updates 90 to 110.
        final_loss: the same over the last 50 updates.
        test_errors: mean squared error at each test length, in eval mode.
    """

    norm: str
    seed: int
    early_loss: float
    final_loss: float
    test_errors: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, measure: str, norm: str) -> list[float]:
        """One number for each seed."""
        return [getattr(o, measure) for o in self.outcomes if o.norm == norm]

    def test_errors(self, norm: str) -> list[tuple[float, ...]]:
        """For each seed the error at each test length."""
        return [o.test_errors for o in self.outcomes if o.norm == norm]


def adding_problem(count: int, length: int, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw sequences of (number, mark) with one mark in each half, and the sums asked for.

    Shape:
        returns (count, length, 2) and (count, 1).

    Source:
        hochreiter1997long, Section 5.4, in the common form with uniform numbers in [0, 1).
    """
    numbers = torch.rand(count, length, generator=generator)
    half = length // 2
    first = torch.randint(half, (count,), generator=generator)
    second = torch.randint(half, length, (count,), generator=generator)
    rows = torch.arange(count)
    marks = torch.zeros(count, length)
    marks[rows, first] = marks[rows, second] = 1
    return torch.stack([numbers, marks], -1), (numbers * marks).sum(1, keepdim=True)


def _fit(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], config: Config) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    losses = []
    for _ in range(config.steps):
        x, y = next(batches)
        loss = mse_loss(model(x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return losses


def run_one(config: Config, norm: StepNorm, seed: int) -> Outcome:
    """Train one network and test it at every length."""
    generator = torch.Generator().manual_seed(seed)
    model = make_gru(2, config.hidden, 1, norm, seed=seed, steps=config.length, beyond="reuse")
    batches = iter(
        lambda: adding_problem(config.batch_size, config.length, generator=generator), None
    )
    losses = _fit(model, batches, config)
    model.eval()
    errors = []
    with torch.no_grad():
        for length in config.test_lengths:
            held_out = torch.Generator().manual_seed(1000 + seed)
            x, y = adding_problem(config.test_size, length, generator=held_out)
            errors.append(mse_loss(model(x), y).item())
    return Outcome(norm, seed, sum(losses[90:110]) / 20, sum(losses[-50:]) / 50, tuple(errors))


def run(config: Config) -> Result:
    """Train every arm with every seed."""
    return Result(tuple(run_one(config, n, s) for n in config.norms for s in config.seeds))
