"""Does a recurrent network with LayerNorm work on longer sequences than it was trained on?"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from normlab.book.experiments.layer_norm.recurrent import Gru, StepNorm
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit

GUESS = 1 / 6  # squared error of always answering 1, the mean of a sum of two uniform numbers


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


def squared_error(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean over a batch."""
    x, y = batch
    return mse_loss(model(x), y)


@experiment(
    norm=("none", "layer_norm", "batch_norm"), lr=(2e-3, 5e-3, 1e-2, 3e-2, 1e-1), seed=range(5)
)
def longer_sequences(
    norm: StepNorm,
    lr: PositiveFloat,
    seed: Seed,
    *,
    length: PositiveInt = 30,
    test_lengths: tuple[PositiveInt, ...] = (30, 60, 120),
    hidden: PositiveInt = 32,
    steps: Steps = 500,
) -> dict[str, Any]:
    """Train a GRU on the adding problem: two numbers of a sequence are marked; answer their sum.

    Args:
        norm: "batch_norm" reuses the statistics of its last step beyond `length`.

    Returns:
        early_loss: training loss, mean over updates 90 to 110.
        final_loss: the same over the last 50 updates.
        test_errors: mean squared error at each test length, in eval mode.
    """
    generator = torch.Generator().manual_seed(seed)
    model = Gru(2, hidden, 1, norm, seed=seed, steps=length, beyond="reuse")
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    batches = (adding_problem(32, length, generator=generator) for _ in itertools.count())
    losses = fit(model, optimizer, batches, steps, loss_of=squared_error, max_grad_norm=1.0)
    model.eval()
    errors = []
    with torch.no_grad():
        for test_length in test_lengths:
            held_out = torch.Generator().manual_seed(1000 + seed)
            batch = adding_problem(512, test_length, generator=held_out)
            errors.append(squared_error(model, batch).item())
    return {
        "early_loss": sum(losses[90:110]) / 20,
        "final_loss": sum(losses[-50:]) / 50,
        "test_errors": errors,
    }
