"""Wrong layer norms as they are published, written out to be read.

Each function has the signature of :func:`torch.nn.functional.layer_norm` and differs from the
right layer in one place, which its docstring names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

WrongNorm = Callable[..., Tensor]


def _dims(normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(normalized_shape), 0))


def moments(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and variance with divisor n."""
    mean = x.mean(dims, keepdim=True)
    return mean, (x - mean).square().mean(dims, keepdim=True)


def affine(x_hat: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Weight and bias, where there are any."""
    y = x_hat if weight is None else x_hat * weight
    return y if bias is None else y + bias


def eps_outside(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Divides by sqrt(var) + eps instead of sqrt(var + eps)."""
    mean, var = moments(input, _dims(normalized_shape))
    return affine((input - mean) / (var.sqrt() + eps), weight, bias)


def bessel_corrected_eps_outside(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / (x.std() + eps), the most copied LayerNorm listing."""
    dims = _dims(normalized_shape)
    mean = input.mean(dims, keepdim=True)
    return affine((input - mean) / (input.std(dims, keepdim=True) + eps), weight, bias)


def other_eps(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """Default eps 1e-6 where torch has 1e-5: a ported checkpoint meets another layer."""
    mean, var = moments(input, _dims(normalized_shape))
    return affine((input - mean) * (var + eps).rsqrt(), weight, bias)


def one_pass(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Computes the variance as mean(x²) - mean(x)², which cancels when the mean is large."""
    dims = _dims(normalized_shape)
    mean = input.mean(dims, keepdim=True)
    var = input.square().mean(dims, keepdim=True) - mean.square()
    return affine((input - mean) * (var + eps).rsqrt(), weight, bias)


def _in_float32(listing: WrongNorm) -> WrongNorm:
    """16-bit input is computed in float32, so that each makes its one mistake only."""

    @functools.wraps(listing)
    def wrapped(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if input.dtype not in (torch.float16, torch.bfloat16):
            return listing(input, *args, **kwargs)
        args = tuple(a.float() if isinstance(a, Tensor) else a for a in args)
        return listing(input.float(), *args, **kwargs).to(input.dtype)

    return wrapped


LISTINGS: dict[str, WrongNorm] = {
    f.__name__: _in_float32(f)
    for f in (eps_outside, bessel_corrected_eps_outside, other_eps, one_pass)
}
