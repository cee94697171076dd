"""How accurate are BatchNorm's statistics on CPU in the two layouts of the same numbers?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.settings import Count, Index

Layout = Literal["(N, C)", "(1, C, N)"]


@dataclass(frozen=True)
class Config:
    """A batch of float32 rows, as it is and transposed, on one thread."""

    batches: tuple[Count, ...] = (256, 4096, 65536)  #: rows
    layouts: tuple[Layout, ...] = get_args(Layout)  #: of the input
    mean: float = 10.0  #: of all values, whose standard deviation is 1
    channels: Count = 8  #: C
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of the rows


def run_one(config: Config, batch: int, layout: Layout, seed: int) -> dict[str, float]:
    """Compare the statistics of one batch with those in float64, and keep the worst channel.

    Measures:
        mean_error: absolute; the standard deviation is 1.
        var_error: relative.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = config.mean + torch.randn(batch, config.channels, generator=generator)
    x = rows if layout == "(N, C)" else rows.t().contiguous()[None]
    running = torch.zeros(config.channels), torch.ones(config.channels)
    _, mean, invstd = torch.native_batch_norm(x, None, None, *running, True, 0.1, 1e-5)
    exact_var, exact_mean = torch.var_mean(rows.double(), 0, correction=0)
    var = invstd.double() ** -2 - 1e-5
    return {
        "mean_error": (mean - exact_mean).abs().max().item(),
        "var_error": (var / exact_var - 1).abs().max().item(),
    }


run = Sweep(run_one, batch="batches", layout="layouts", seed="seeds")
