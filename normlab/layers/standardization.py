"""The arithmetic that the norms share: subtract a mean, divide by a root, scale and shift."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for the two 16-bit types, otherwise `dtype` itself."""
    return torch.float32 if dtype in _HALF else dtype


def standardize(x: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    r"""Center `x` over `dims` and divide by the root of its biased variance plus `eps`.

    .. math:: \hat x = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}, \qquad
              \sigma^2 = \frac1n \sum (x - \mu)^2

    Returns:
        `x_hat` of the shape and dtype of `x`, and mean and variance with size 1 along `dims`.

    Source:
        ioffe2015batch, Algorithm 1; ba2016layer, Eq. 3.
    """
    dims = tuple(dims)
    mean = x.mean(dims, keepdim=True)
    centered = x - mean
    # `mean` is rounded to the dtype of x: at mean 1e4 that alone costs four digits. What it
    # missed is the mean of what it left (the corrected two-pass algorithm).
    missed = centered.mean(dims, keepdim=True)
    centered = centered - missed
    # not x.var(): on CPU that is 30 to 60 times slower than a mean
    var = centered.square().mean(dims, keepdim=True)
    return centered * torch.rsqrt(var + eps), mean + missed, var


def affine(
    y: Tensor, weight: Tensor | None, bias: Tensor | None = None, shape: Sequence[int] = ()
) -> Tensor:
    """y * weight + bias, where None is skipped; both are viewed in `shape`, if it is given."""
    if weight is not None:
        y = y * (weight.view(shape) if shape else weight)
    if bias is not None:
        y = y + (bias.view(shape) if shape else bias)
    return y


def channel_shape(input: Tensor) -> tuple[int, ...]:
    """The shape in which a vector (C,) meets (N, C, positions)."""
    return (1, -1) + (1,) * (input.dim() - 2)


def standardize_with(x: Tensor, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    """Center each channel of `x` by a given mean (C,) and divide by the root of a given variance.

    In evaluation these are the running statistics, and the layer is a fixed affine map.
    """
    shape = channel_shape(x)
    mean, var = mean.to(x.dtype), var.to(x.dtype)
    return (x - mean.view(shape)) * torch.rsqrt(var + eps).view(shape)


@torch.no_grad()
def update_running_statistics(
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor,
    var: Tensor,
    *,
    count: int,
    momentum: float,
) -> None:
    r"""Move the buffers towards the statistics of this batch, in place.

    .. math:: r \leftarrow (1 - m)\, r + m\, s

    `momentum` m is the weight of the *new* batch; its biased `var` of `count` values is stored
    times count / (count - 1), as in torch. A buffer of None is left out.

    Source:
        ioffe2015batch, Algorithm 2.
    """
    if running_mean is not None:
        running_mean.copy_((1 - momentum) * running_mean + momentum * mean)
    if running_var is not None:
        bessel = count / (count - 1)
        running_var.copy_((1 - momentum) * running_var + momentum * bessel * var)
