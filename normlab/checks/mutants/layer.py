"""Wrong layer norms that a test suite must reject, each after a bug that was published.

`LAYER_NORM_MUTANTS` maps a name to a function with the signature of
:func:`torch.nn.functional.layer_norm`. Each differs from the right layer in one place, which
its docstring names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from normlab.checks.mutants.parts import WrongNorm, affine, bessel, in_float32, moments

__all__ = ["LAYER_NORM_MUTANTS"]


def _dims(normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(normalized_shape), 0))


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


def bessel_corrected(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Divides by H - 1 where the paper divides by H, as x.var() does by default."""
    dims = _dims(normalized_shape)
    mean, var = moments(input, dims)
    return affine((input - mean) / (var * bessel(input, dims) + eps).sqrt(), weight, bias)


def bessel_corrected_eps_outside(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Both of the above: (x - mean) / (x.std() + eps), the most copied LayerNorm listing."""
    dims = _dims(normalized_shape)
    mean, var = moments(input, dims)
    return affine((input - mean) / ((var * bessel(input, dims)).sqrt() + eps), weight, bias)


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


def detached_statistics(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Takes mean and variance as constants in the backward pass."""
    mean, var = moments(input.detach(), _dims(normalized_shape))
    return affine((input - mean) * (var + eps).rsqrt(), weight, bias)


def uncentered_numerator(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Divides x, not x - mean, by the standard deviation."""
    _, var = moments(input, _dims(normalized_shape))
    return affine(input * (var + eps).rsqrt(), weight, bias)


def wrong_axis(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Takes the mean over the axis before the features (the tokens), not over the features."""
    dims = (-len(normalized_shape) - 1,)
    mean, var = moments(input, dims)
    return affine((input - mean) * (var + eps).rsqrt(), weight, bias)


class _WrongBackward(torch.autograd.Function):
    """LayerNorm with a right forward and a chosen wrong gradient by the input."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        dims: tuple[int, ...],
        eps: float,
        mistake: str,
    ) -> Tensor:
        mean, var = moments(x, dims)
        rstd = (var + eps).rsqrt()
        x_hat = (x - mean) * rstd
        ctx.save_for_backward(x_hat, rstd, weight, bias)
        ctx.dims, ctx.mistake = dims, mistake
        return affine(x_hat, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (dy,) = grads
        x_hat, rstd, weight, bias = ctx.saved_tensors
        dims, mistake = ctx.dims, ctx.mistake
        g = dy if weight is None or mistake == "late weight" else dy * weight
        through_mean = 0.0 if mistake == "mean" else g.mean(dims, keepdim=True)
        through_var = 0.0 if mistake == "variance" else x_hat * (g * x_hat).mean(dims, keepdim=True)
        dx = rstd * (g - through_mean - through_var)
        if mistake == "late weight" and weight is not None:
            dx = dx * weight
        rows = tuple(range(dy.dim() - len(dims)))
        dweight = None if weight is None else (dy * x_hat).sum(rows)
        dbias = None if bias is None else dy.sum(rows)
        return dx, dweight, dbias, None, None, None


def backward_without_mean_term(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The gradient by the input lacks the term that comes through the mean."""
    dims = _dims(normalized_shape)
    return _WrongBackward.apply(input, weight, bias, dims, eps, "mean")


def backward_without_projection_term(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The gradient by the input lacks the term that comes through the variance."""
    dims = _dims(normalized_shape)
    return _WrongBackward.apply(input, weight, bias, dims, eps, "variance")


def weight_after_projection(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The backward pass multiplies by the weight after the projection instead of before."""
    dims = _dims(normalized_shape)
    return _WrongBackward.apply(input, weight, bias, dims, eps, "late weight")


LAYER_NORM_MUTANTS: dict[str, WrongNorm] = {
    f.__name__: in_float32(f)
    for f in (
        eps_outside,
        bessel_corrected,
        bessel_corrected_eps_outside,
        other_eps,
        one_pass,
        detached_statistics,
        uncentered_numerator,
        wrong_axis,
        backward_without_mean_term,
        backward_without_projection_term,
        weight_after_projection,
    )
}
