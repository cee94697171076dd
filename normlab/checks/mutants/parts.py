"""What the wrong norms have in common, and have right."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["WrongNorm", "affine", "bessel", "in_float32", "moments"]

WrongNorm = Callable[..., Tensor]


def affine(x_hat: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Weight and bias, where there are any."""
    y = x_hat if weight is None else x_hat * weight
    return y if bias is None else y + bias


def in_float32(mutant: WrongNorm) -> WrongNorm:
    """16-bit input is computed in float32, so that each mutant makes its one mistake only."""

    @functools.wraps(mutant)
    def wrapped(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if input.dtype not in (torch.float16, torch.bfloat16):
            return mutant(input, *args, **kwargs)
        args = tuple(a.float() if isinstance(a, Tensor) else a for a in args)
        return mutant(input.float(), *args, **kwargs).to(input.dtype)

    return wrapped


def moments(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and variance with divisor n."""
    mean = x.mean(dims, keepdim=True)
    return mean, (x - mean).square().mean(dims, keepdim=True)


def bessel(x: Tensor, dims: tuple[int, ...]) -> float:
    """n / (n - 1)."""
    count = 1
    for d in dims:
        count *= x.shape[d]
    return count / (count - 1) if count > 1 else float("nan")
