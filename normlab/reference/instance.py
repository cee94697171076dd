"""InstanceNorm in NumPy: forward, closed-form backward, node-by-node backward, Jacobian."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.norms import reduced_axes
from normlab.reference.standardization import (
    Gradients,
    affine,
    affine_backward,
    as_gradients,
    standardize,
    standardize_backward,
    standardize_backward_by_node,
    standardize_jacobian,
    update_running,
)
from normlab.reference.validation import as_channel_vector, as_float64, check_upstream


class InstanceNormCache(NamedTuple):
    """What the backward pass needs; weight and bias are (1, C, 1, ...).

    Attributes:
        rstd: (N, C, 1, ...), or (1, C, 1, ...) with running statistics; units 1/x.
        use_input_stats: whether mean and variance came from the input.
        running_mean: (C,) after this call, or None.
        running_var: (C,) after this call, or None.
    """

    x_hat: np.ndarray
    rstd: np.ndarray
    weight: np.ndarray | None
    bias: np.ndarray | None
    axes: tuple[int, ...]
    use_input_stats: bool
    running_mean: np.ndarray | None
    running_var: np.ndarray | None


def instance_norm(
    input: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[np.ndarray, InstanceNormCache]:
    r"""Normalize each channel of each sample over its positions, in float64.

    .. math:: y = \frac{x - \mu_{nc}}{\sqrt{\sigma_{nc}^2 + \epsilon}} \, w_c + b_c

    The arguments are those of :func:`normlab.layers.instance_norm`, as arrays of real numbers.

    Returns:
        the output, and a cache that also holds the new running statistics (the arguments are
        left as they are).

    Raises:
        ValueError: a shape that does not fit, one position only, one running statistic
            without the other, or none although they are to be used.

    Source:
        ulyanov2016instance, Eq. 3.

    Example:
        >>> y, _ = instance_norm([[[1.0, 3.0], [10.0, 30.0]]], eps=0.0)
        >>> y
        array([[[-1.,  1.],
                [-1.,  1.]]])
    """
    x = as_float64("input", input)
    if x.ndim < 2:
        raise ValueError(f"input: got shape {x.shape}; expected (N, C, *)")
    if (running_mean is None) != (running_var is None):
        raise ValueError("running_mean, running_var: expected both, or neither")
    positions = math.prod(x.shape[2:])
    if use_input_stats and positions == 1:
        raise ValueError(
            f"input: got shape {x.shape}, one position per channel, whose variance is 0; "
            "expected more than one"
        )
    mean = as_channel_vector("running_mean", running_mean, x)
    var = as_channel_vector("running_var", running_var, x)
    w, b = as_channel_vector("weight", weight, x), as_channel_vector("bias", bias, x)
    axes = reduced_axes("instance_norm", x.ndim)
    new_mean = None if mean is None else mean.ravel()
    new_var = None if var is None else var.ravel()
    if use_input_stats:
        x_hat, rstd, sample_mean, sample_var = standardize(x, axes, eps)
        if x.size:
            by_channel = x.shape[:2]
            bessel = positions / (positions - 1)
            new_mean = update_running(new_mean, sample_mean.reshape(by_channel).mean(0), momentum)
            new_var = update_running(
                new_var, bessel * sample_var.reshape(by_channel).mean(0), momentum
            )
    elif mean is None or var is None:
        raise ValueError(
            "running_mean, running_var: got None with use_input_stats=False; expected arrays "
            f"of shape ({x.shape[1]},)"
        )
    else:
        rstd = 1.0 / np.sqrt(var + eps)
        x_hat = (x - mean) * rstd
    cache = InstanceNormCache(x_hat, rstd, w, b, axes, use_input_stats, new_mean, new_var)
    return affine(x_hat, w, b), cache


def instance_norm_backward(dy: ArrayLike, cache: InstanceNormCache) -> Gradients:
    """Gradients of :func:`instance_norm`: :func:`group_norm_backward` with a channel in a group.

    With running statistics these are constants, as in :func:`batch_norm_backward`.

    Source:
        ulyanov2016instance, Eq. 3, differentiated as in ioffe2015batch, Section 3.
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    dx_hat, dweight, dbias = affine_backward(dy, cache.x_hat, cache.weight, cache.bias)
    if cache.use_input_stats:
        dx = standardize_backward(dx_hat, cache.x_hat, cache.rstd, cache.axes)
    else:
        dx = cache.rstd * dx_hat
    return as_gradients(dx, dweight, dbias)


def instance_norm_backward_by_node(
    dy: ArrayLike, cache: InstanceNormCache
) -> dict[str, np.ndarray]:
    """The gradients node by node, as :func:`layer_norm_backward_by_node` has them.

    Raises:
        ValueError: the cache is from running statistics.
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    if not cache.use_input_stats:
        raise ValueError(
            "cache: got one from running statistics; expected one from use_input_stats=True"
        )
    dx_hat = dy if cache.weight is None else dy * cache.weight
    return standardize_backward_by_node(dx_hat, cache.x_hat, cache.rstd, cache.axes)


def instance_norm_jacobian(x: ArrayLike, eps: float = 1e-5) -> np.ndarray:
    """Jacobian (m, m) at the m positions of one channel; that of :func:`layer_norm_jacobian`."""
    return standardize_jacobian(x, eps)
