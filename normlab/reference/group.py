"""GroupNorm in NumPy: forward, closed-form backward, node-by-node backward, Jacobian."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.norms import reduced_axes, split_channels
from normlab.reference.standardization import (
    Gradients,
    affine,
    affine_backward,
    as_gradients,
    standardize,
    standardize_backward,
    standardize_backward_by_node,
    standardize_jacobian,
)
from normlab.reference.validation import as_channel_vector, as_float64, check_upstream


class GroupNormCache(NamedTuple):
    """What the backward pass needs; weight and bias are (1, C, 1, ...).

    Attributes:
        rstd: (N, G, 1, ...), one for each group of each sample; units 1/x.
        grouped_shape: (N, G, C/G, *).
    """

    x_hat: np.ndarray
    rstd: np.ndarray
    weight: np.ndarray | None
    bias: np.ndarray | None
    grouped_shape: tuple[int, ...]


def group_norm(
    input: ArrayLike,
    num_groups: int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
) -> tuple[np.ndarray, GroupNormCache]:
    r"""Normalize each sample over groups of consecutive channels and all positions.

    .. math:: y = \frac{x - \mu_{ng}}{\sqrt{\sigma^2_{ng} + \epsilon}} \, w_c + b_c

    The arguments are those of :func:`normlab.layers.group_norm`, as arrays of real numbers.

    Raises:
        ValueError: a shape that does not fit, `num_groups` that does not divide C, or a single
            value per group and no second group.

    Source:
        wu2018group, Eq. 1, 2 and 7.

    Example:
        >>> y, _ = group_norm([[1.0, 3.0, 10.0, 30.0]], 2, eps=0.0)
        >>> y
        array([[-1.,  1., -1.,  1.]])
    """
    x = as_float64("input", input)
    if x.ndim < 2:
        raise ValueError(f"input: got shape {x.shape}; expected (N, C, *)")
    batch, channels, *positions = x.shape
    if num_groups < 1 or channels % num_groups:
        raise ValueError(
            f"num_groups: got {num_groups} for {channels} channels; expected a positive divisor"
        )
    if batch * channels // num_groups * math.prod(positions) == 1:
        raise ValueError(
            f"input: got shape {x.shape}, one value per group, whose variance is 0; expected "
            "more. Use fewer groups"
        )
    grouped_shape = split_channels(x.shape, num_groups)
    w, b = as_channel_vector("weight", weight, x), as_channel_vector("bias", bias, x)
    axes = reduced_axes("group_norm", len(grouped_shape))
    x_hat, rstd, _, _ = standardize(x.reshape(grouped_shape), axes, eps)
    x_hat = x_hat.reshape(x.shape)
    return affine(x_hat, w, b), GroupNormCache(x_hat, rstd, w, b, grouped_shape)


def group_norm_backward(dy: ArrayLike, cache: GroupNormCache) -> Gradients:
    r"""Gradients of :func:`group_norm` in closed form.

    .. math:: dx = r\left(g - \bar g - \hat x \, \overline{g \odot \hat x}\right), \quad
              g = dy \odot w

    The bars are means over a group; weight and bias are summed over samples and positions.

    Source:
        wu2018group, Eq. 1 and 2, differentiated as in ioffe2015batch, Section 3.
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    dx_hat, dweight, dbias = affine_backward(dy, cache.x_hat, cache.weight, cache.bias)
    grouped = cache.grouped_shape
    dx = standardize_backward(
        dx_hat.reshape(grouped),
        cache.x_hat.reshape(grouped),
        cache.rstd,
        reduced_axes("group_norm", len(grouped)),
    )
    return as_gradients(dx.reshape(dy.shape), dweight, dbias)


def group_norm_backward_by_node(dy: ArrayLike, cache: GroupNormCache) -> dict[str, np.ndarray]:
    """The gradients node by node, as :func:`layer_norm_backward_by_node` has them.

    Those by x_hat, centered and x have the shape of the input, the others that of `cache.rstd`.
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    dx_hat = dy if cache.weight is None else dy * cache.weight
    grouped = cache.grouped_shape
    found = standardize_backward_by_node(
        dx_hat.reshape(grouped),
        cache.x_hat.reshape(grouped),
        cache.rstd,
        reduced_axes("group_norm", len(grouped)),
    )
    return found | {name: found[name].reshape(dy.shape) for name in ("x_hat", "centered", "x")}


def group_norm_jacobian(x: ArrayLike, eps: float = 1e-5) -> np.ndarray:
    """Jacobian (m, m) at the m values of one group; that of :func:`layer_norm_jacobian`."""
    return standardize_jacobian(x, eps)
