"""How accurate are BatchNorm's statistics on CPU in the two layouts of the same numbers?"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from pydantic import PositiveInt

from normlab.book.experiments.sweep import Seed, experiment

Layout = Literal["(N, C)", "(1, C, N)"]


@experiment(batch=(256, 4096, 65536), layout=get_args(Layout), seed=range(3))
def batch_summation(batch: PositiveInt, layout: Layout, seed: Seed) -> dict[str, float]:
    """Compare float32 statistics of a batch of rows with float64, and keep the worst channel.

    Returns:
        mean_error: absolute; the standard deviation is 1.
        var_error: relative.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = 10.0 + torch.randn(batch, 8, generator=generator)
    x = rows if layout == "(N, C)" else rows.t().contiguous()[None]
    running = torch.zeros(8), torch.ones(8)
    _, mean, invstd = torch.native_batch_norm(x, None, None, *running, True, 0.1, 1e-5)
    exact_var, exact_mean = torch.var_mean(rows.double(), 0, correction=0)
    var = invstd.double() ** -2 - 1e-5
    return {
        "mean_error": (mean - exact_mean).abs().max().item(),
        "var_error": (var / exact_var - 1).abs().max().item(),
    }
