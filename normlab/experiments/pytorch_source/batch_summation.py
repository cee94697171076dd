"""How accurate are BatchNorm's statistics on CPU in the two layouts of the same numbers?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from normlab.experiments.processor import with_threads
from normlab.experiments.settings import Count, Index

__all__ = ["Config", "Outcome", "Result", "run"]

Layout = Literal["(N, C)", "(1, C, N)"]


@dataclass(frozen=True)
class Config:
    """A batch of float32 rows, as it is and transposed, on one thread.

    Attributes:
        batches: rows.
        mean: of all values, whose standard deviation is 1.
        channels: C.
        seeds: of the rows.
    """

    batches: tuple[Count, ...] = (256, 4096, 65536)
    mean: float = 10.0
    channels: Count = 8
    seeds: tuple[Index, ...] = (0, 1, 2)


@dataclass(frozen=True)
class Outcome:
    """Errors of the statistics for one batch and layout, the largest of all seeds and channels.

    Attributes:
        batch: rows.
        layout: of the input.
        mean_error: absolute; the standard deviation is 1.
        var_error: relative.
    """

    batch: int
    layout: Layout
    mean_error: float
    var_error: float


@dataclass(frozen=True)
class Result:
    """All errors, and torch's version."""

    outcomes: tuple[Outcome, ...]
    torch: str

    def of(self, batch: int, layout: Layout) -> Outcome:
        """One outcome."""
        return next(o for o in self.outcomes if (o.batch, o.layout) == (batch, layout))


def _errors(x: Tensor, rows: Tensor) -> tuple[float, float]:
    channels, eps = rows.shape[1], 1e-5
    running = torch.zeros(channels), torch.ones(channels)
    with with_threads(1):
        _, mean, invstd = torch.native_batch_norm(x, None, None, *running, True, 0.1, eps)
    exact_var, exact_mean = torch.var_mean(rows.double(), 0, correction=0)
    var = invstd.double() ** -2 - eps
    return (
        (mean - exact_mean).abs().max().item(),
        (var / exact_var - 1).abs().max().item(),
    )


def run(config: Config) -> Result:
    """Measure every batch in both layouts."""
    outcomes = []
    for batch in config.batches:
        found: dict[Layout, list[tuple[float, float]]] = {"(N, C)": [], "(1, C, N)": []}
        for seed in config.seeds:
            generator = torch.Generator().manual_seed(seed)
            rows = config.mean + torch.randn(batch, config.channels, generator=generator)
            found["(N, C)"].append(_errors(rows, rows))
            found["(1, C, N)"].append(_errors(rows.t().contiguous()[None], rows))
        for layout, errors in found.items():
            mean_errors, var_errors = zip(*errors, strict=True)
            outcomes.append(Outcome(batch, layout, max(mean_errors), max(var_errors)))
    return Result(tuple(outcomes), torch.__version__)
