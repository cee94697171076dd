"""Wrong norms that a test suite must reject, each after a bug that was published.

`LAYER_NORM_MUTANTS` and `BATCH_NORM_MUTANTS` map a name to a function with the signature of
:func:`torch.nn.functional.layer_norm` or :func:`torch.nn.functional.batch_norm`. Each mutant
differs from the right layer in one place, which its docstring names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["BATCH_NORM_MUTANTS", "LAYER_NORM_MUTANTS"]

Mutant = Callable[..., Tensor]


def _affine(x_hat: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = x_hat if weight is None else x_hat * weight
    return y if bias is None else y + bias


def _in_float32(mutant: Mutant) -> Mutant:
    """16-bit input is computed in float32, so that each mutant makes its one mistake only."""

    @functools.wraps(mutant)
    def wrapped(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if input.dtype not in (torch.float16, torch.bfloat16):
            return mutant(input, *args, **kwargs)
        args = tuple(a.float() if isinstance(a, Tensor) else a for a in args)
        return mutant(input.float(), *args, **kwargs).to(input.dtype)

    return wrapped


def _dims(normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(-len(normalized_shape), 0))


def _moments(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    mean = x.mean(dims, keepdim=True)
    return mean, (x - mean).square().mean(dims, keepdim=True)


def _bessel(x: Tensor, dims: tuple[int, ...]) -> float:
    count = 1
    for d in dims:
        count *= x.shape[d]
    return count / (count - 1) if count > 1 else float("nan")


def eps_outside(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Divides by sqrt(var) + eps instead of sqrt(var + eps)."""
    mean, var = _moments(input, _dims(normalized_shape))
    return _affine((input - mean) / (var.sqrt() + eps), weight, bias)


def bessel_corrected(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Divides by H - 1 where the paper divides by H, as x.var() does by default."""
    dims = _dims(normalized_shape)
    mean, var = _moments(input, dims)
    return _affine((input - mean) / (var * _bessel(input, dims) + eps).sqrt(), weight, bias)


def bessel_corrected_eps_outside(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Both of the above: (x - mean) / (x.std() + eps), the most copied LayerNorm listing."""
    dims = _dims(normalized_shape)
    mean, var = _moments(input, dims)
    return _affine((input - mean) / ((var * _bessel(input, dims)).sqrt() + eps), weight, bias)


def other_eps(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """Default eps 1e-6 where torch has 1e-5: a ported checkpoint meets another layer."""
    mean, var = _moments(input, _dims(normalized_shape))
    return _affine((input - mean) * (var + eps).rsqrt(), weight, bias)


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
    return _affine((input - mean) * (var + eps).rsqrt(), weight, bias)


def detached_statistics(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Takes mean and variance as constants in the backward pass."""
    mean, var = _moments(input.detach(), _dims(normalized_shape))
    return _affine((input - mean) * (var + eps).rsqrt(), weight, bias)


def uncentered_numerator(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Divides x, not x - mean, by the standard deviation."""
    _, var = _moments(input, _dims(normalized_shape))
    return _affine(input * (var + eps).rsqrt(), weight, bias)


def wrong_axis(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Takes the mean over the axis before the features (the tokens), not over the features."""
    dims = (-len(normalized_shape) - 1,)
    mean, var = _moments(input, dims)
    return _affine((input - mean) * (var + eps).rsqrt(), weight, bias)


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
        mean, var = _moments(x, dims)
        rstd = (var + eps).rsqrt()
        x_hat = (x - mean) * rstd
        ctx.save_for_backward(x_hat, rstd, weight, bias)
        ctx.dims, ctx.mistake = dims, mistake
        return _affine(x_hat, weight, bias)

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


LAYER_NORM_MUTANTS: dict[str, Mutant] = {
    f.__name__: _in_float32(f)
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


def _make_batch_norm(mistake: str, doc: str) -> Mutant:
    def mutant(
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        dims = (0, *range(2, input.dim()))
        view = (1, -1) + (1,) * (input.dim() - 2)
        if training or mistake == "eval_uses_batch":
            source = input.detach() if mistake == "detached_statistics" else input
            mean, var = _moments(source, dims)
            bessel = _bessel(input, dims)
            if mistake == "bessel_in_forward":
                var = var * bessel
            if mistake == "one_pass":
                var = input.square().mean(dims, keepdim=True) - mean.square()
            if training and running_mean is not None and running_var is not None:
                new = 1 - momentum if mistake == "momentum_reversed" else momentum
                factor = 1.0 if mistake in ("running_var_biased", "bessel_in_forward") else bessel
                with torch.no_grad():
                    running_mean.mul_(1 - new).add_(new * mean.flatten())
                    running_var.mul_(1 - new).add_(new * factor * var.flatten())
        else:
            if running_mean is None or running_var is None:
                raise ValueError("running statistics are needed in evaluation")
            mean, var = running_mean.view(view), running_var.view(view)
        std = var.sqrt() + eps if mistake == "eps_outside" else (var + eps).sqrt()
        x_hat = (input if mistake == "uncentered_numerator" else input - mean) / std
        y = x_hat if weight is None else x_hat * weight.view(view)
        return y if bias is None else y + bias.view(view)

    mutant.__name__ = mutant.__qualname__ = mistake
    mutant.__doc__ = doc
    return mutant


BATCH_NORM_MUTANTS: dict[str, Mutant] = {
    mistake: _in_float32(_make_batch_norm(mistake, doc))
    for mistake, doc in {
        "eps_outside": "Divides by sqrt(var) + eps instead of sqrt(var + eps).",
        "bessel_in_forward": "Normalizes with divisor n - 1.",
        "running_var_biased": "Stores the biased variance; torch stores the corrected one.",
        "momentum_reversed": "Takes momentum as the weight of the old value.",
        "eval_uses_batch": "Normalizes with the batch in evaluation, too.",
        "detached_statistics": "Takes mean and variance as constants in the backward pass.",
        "one_pass": "Computes the variance as mean(x²) - mean(x)².",
        "uncentered_numerator": "Divides x, not x - mean, by the standard deviation.",
    }.items()
}
