"""What does LayerNorm lose when its statistics are computed in 16 bits?"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from normlab.book.experiments.sweep import experiment

Method = Literal["float32 statistics", "two passes in half", "one pass in half"]
Dtype = Literal["float16", "bfloat16"]
EPS = 1e-5
DTYPES: dict[Dtype, torch.dtype] = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def normalize_in(method: Method, x: Tensor, eps: float) -> Tensor:
    """LayerNorm of 16-bit rows (last axis), in their dtype or with statistics in float32."""
    if method == "float32 statistics":
        return normalize_in("two passes in half", x.float(), eps).to(x.dtype)
    mean = x.mean(-1, keepdim=True)
    if method == "two passes in half":
        var = (x - mean).square().mean(-1, keepdim=True)
    else:
        var = x.square().mean(-1, keepdim=True) - mean.square()
    return (x - mean) * torch.rsqrt(var + eps)


def _error(method: Method, dtype: Dtype, mean: float, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(16, 768, generator=generator)
    x = (mean + noise).to(DTYPES[dtype])
    exact = x.double() - x.double().mean(-1, keepdim=True)
    exact = exact / (exact.square().mean(-1, keepdim=True) + EPS).sqrt()
    error = (normalize_in(method, x, EPS).double() - exact).abs().max()
    return error.item() if error.isfinite() else float("inf")


@experiment(method=get_args(Method), dtype=get_args(Dtype), mean=(0.0, 10.0, 100.0))
def half_statistics(method: Method, dtype: Dtype, mean: float) -> dict[str, float | None]:
    """Normalize rows of 16-bit numbers with standard deviation 1 around a mean.

    Returns:
        error: largest error of the output over five seeds, beside float64 on the same rounded
            rows; None where an output is not finite.
    """
    error = max(_error(method, dtype, mean, seed) for seed in (0, 1, 2, 3, 4))
    return {"error": error if math.isfinite(error) else None}
