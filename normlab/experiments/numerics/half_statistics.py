"""What does LayerNorm lose when its statistics are computed in 16 bits?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from normlab.experiments.settings import Count, Index, NotNegative, check_settings

__all__ = ["Config", "Method", "Outcome", "Result", "add_in_order", "normalize_in", "run"]

Method = Literal["float32 statistics", "two passes in half", "one pass in half"]
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Config:
    """Rows of 16-bit numbers with standard deviation 1 around a mean.

    Attributes:
        means: of the rows.
        dtypes: of the rows.
        features: D.
        rows: with each mean, for each seed.
        eps: inside the root.
        seeds: of the rows.
    """

    means: tuple[float, ...] = (0.0, 10.0, 100.0)
    dtypes: tuple[str, ...] = ("float16", "bfloat16")
    features: Count = 768
    rows: Count = 16
    eps: NotNegative = 1e-5
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        check_settings(self)
        if unknown := set(self.dtypes) - set(DTYPES):
            raise ValueError(f"dtypes: got {sorted(unknown)}; expected some of {sorted(DTYPES)}")


@dataclass(frozen=True)
class Outcome:
    """One method on one kind of row.

    Attributes:
        method: of the statistics.
        dtype: of the rows.
        mean: of the rows.
        error: largest error of the output over the seeds, beside float64 on the same rounded
            rows; infinite where an output is not finite.
    """

    method: Method
    dtype: str
    mean: float
    error: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def of(self, method: Method, dtype: str, mean: float) -> float:
        """The error of one method on one kind of row."""
        wanted = (method, dtype, mean)
        return next(o.error for o in self.outcomes if (o.method, o.dtype, o.mean) == wanted)


def normalize_in(method: Method, x: Tensor, eps: float) -> Tensor:
    """LayerNorm of 16-bit rows, in the dtype of `x` or with statistics in float32.

    Args:
        method: "float32 statistics", "two passes in half" or "one pass in half".
        x: rows along the last axis.
        eps: inside the root.
    """
    if method == "float32 statistics":
        return normalize_in("two passes in half", x.float(), eps).to(x.dtype)
    mean = x.mean(-1, keepdim=True)
    if method == "two passes in half":
        var = (x - mean).square().mean(-1, keepdim=True)
    else:
        var = x.square().mean(-1, keepdim=True) - mean.square()
    return (x - mean) * torch.rsqrt(var + eps)


def add_in_order(dtype: str, count: int) -> float:
    """Sum of `count` ones, added one after another in `dtype`."""
    total = torch.zeros((), dtype=DTYPES[dtype])
    one = torch.ones((), dtype=DTYPES[dtype])
    for _ in range(count):
        total = total + one
    return total.item()


def _error(method: Method, dtype: str, mean: float, seed: int, config: Config) -> float:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(config.rows, config.features, generator=generator)
    x = (mean + noise).to(DTYPES[dtype])
    exact = x.double() - x.double().mean(-1, keepdim=True)
    exact = exact / (exact.square().mean(-1, keepdim=True) + config.eps).sqrt()
    error = (normalize_in(method, x, config.eps).double() - exact).abs().max()
    return error.item() if error.isfinite() else float("inf")


def run(config: Config) -> Result:
    """Measure every method on every kind of row."""
    return Result(
        tuple(
            Outcome(
                method,
                dtype,
                mean,
                max(_error(method, dtype, mean, seed, config) for seed in config.seeds),
            )
            for method in get_args(Method)
            for dtype in config.dtypes
            for mean in config.means
        )
    )
