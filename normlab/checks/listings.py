"""A wrong layer norm as it is published, written out to be read.

It has the signature of :func:`torch.nn.functional.layer_norm` and differs from the right layer in
one place, which its docstring names.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def moments(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and variance with divisor n."""
    mean = x.mean(dims, keepdim=True)
    return mean, (x - mean).square().mean(dims, keepdim=True)


def affine(x_hat: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Weight and bias, where there are any."""
    y = x_hat if weight is None else x_hat * weight
    return y if bias is None else y + bias


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
