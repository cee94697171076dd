"""Does a recurrent network with LayerNorm work on longer sequences than it was trained on?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.layer_norm.recurrent import Gru, StepNorm
from normlab.experiments.settings import Count, Index, Positive

GUESS = 1 / 6  # squared error of always answering 1, the mean of a sum of two uniform numbers


@dataclass(frozen=True)
class Config:
    """The adding problem: two numbers of a sequence are marked; answer their sum."""

    #: "batch_norm" reuses the statistics of its last step beyond `length`
    norms: tuple[StepNorm, ...] = ("none", "layer_norm", "batch_norm")
    #: learning rates of Adam, every norm at every one
    lrs: tuple[Positive, ...] = (2e-3, 5e-3, 1e-2, 3e-2, 1e-1)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and data
    length: Count = 30  #: time steps in training
    test_lengths: tuple[Count, ...] = (30, 60, 120)  #: time steps in testing
    hidden: Count = 32  #: units
    steps: Count = 500  #: updates
    batch_size: Count = 32  #: sequences in a batch
    test_size: Count = 512  #: sequences per test length


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


def run_one(config: Config, norm: StepNorm, lr: float, seed: int) -> dict[str, Any]:
    """Train one network and test it at every length.

    Measures:
        early_loss: training loss, mean over updates 90 to 110.
        final_loss: the same over the last 50 updates.
        test_errors: mean squared error at each test length, in eval mode.
    """
    generator = torch.Generator().manual_seed(seed)
    model = Gru(2, config.hidden, 1, norm, seed=seed, steps=config.length, beyond="reuse")
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for _ in range(config.steps):
        x, y = adding_problem(config.batch_size, config.length, generator=generator)
        loss = mse_loss(model(x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    errors = []
    with torch.no_grad():
        for length in config.test_lengths:
            held_out = torch.Generator().manual_seed(1000 + seed)
            x, y = adding_problem(config.test_size, length, generator=held_out)
            errors.append(mse_loss(model(x), y).item())
    return {
        "early_loss": sum(losses[90:110]) / 20,
        "final_loss": sum(losses[-50:]) / 50,
        "test_errors": tuple(errors),
    }


run = Sweep(run_one, norm="norms", lr="lrs", seed="seeds")
