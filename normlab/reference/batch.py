"""BatchNorm in NumPy: forward in both modes, closed-form and node-by-node backward, Jacobian."""

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
    standardize_jacobian,
    update_running,
)
from normlab.reference.validation import as_channel_vector, as_float64, check_upstream


class BatchNormCache(NamedTuple):
    """What the backward pass needs; weight, bias and `rstd` are (1, C, 1, ...), `rstd` in 1/x.

    Attributes:
        training: whether mean and variance came from this batch.
        running_mean: (C,) after this call, or None.
        running_var: (C,) after this call, or None.
    """

    x_hat: np.ndarray
    rstd: np.ndarray
    weight: np.ndarray | None
    bias: np.ndarray | None
    axes: tuple[int, ...]
    training: bool
    running_mean: np.ndarray | None
    running_var: np.ndarray | None


def batch_norm(
    input: ArrayLike,
    running_mean: ArrayLike | None,
    running_var: ArrayLike | None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[np.ndarray, BatchNormCache]:
    r"""Normalize each channel over the batch, or with running statistics, in float64.

    .. math:: y = \frac{x - \mu_c}{\sqrt{\sigma_c^2 + \epsilon}} \, w_c + b_c

    The arguments are those of :func:`normlab.layers.batch_norm`, as arrays of real numbers.

    Returns:
        the output, and a cache for :func:`batch_norm_backward` that also holds the new running
        statistics: this function is pure and leaves its arguments as they are, whereas torch
        writes into them.

    Raises:
        ValueError: a shape that does not fit, one value per channel in training, `eps` not
            positive in training or negative in evaluation, one running statistic without the
            other, or none in evaluation.

    Conventions:
        normalizes with the biased variance, records the Bessel-corrected one.

    Source:
        ioffe2015batch, Algorithms 1 and 2.

    Example:
        >>> y, cache = batch_norm([[0.0], [2.0]], [0.0], [1.0], training=True, momentum=1.0)
        >>> y.round(3).ravel(), cache.running_var
        (array([-1.,  1.]), array([2.]))
    """
    x = as_float64("input", input)
    if x.ndim < 2:
        raise ValueError(f"input: got shape {x.shape}; expected (N, C, *)")
    if (running_mean is None) != (running_var is None):
        raise ValueError("running_mean, running_var: expected both, or neither")
    count = math.prod(x.shape[:1] + x.shape[2:])
    if training and count == 1:
        raise ValueError(
            f"input: got shape {x.shape}, one value per channel in training, whose variance "
            "is 0; expected more than one. Use a larger batch or training=False"
        )
    if eps < 0 or (training and eps == 0):
        raise ValueError(f"eps: got {eps}; expected {'eps > 0' if training else 'eps >= 0'}")
    mean = as_channel_vector("running_mean", running_mean, x)
    var = as_channel_vector("running_var", running_var, x)
    w, b = as_channel_vector("weight", weight, x), as_channel_vector("bias", bias, x)
    axes = reduced_axes("batch_norm", x.ndim)
    new_mean = None if mean is None else mean.ravel()
    new_var = None if var is None else var.ravel()
    if training:
        x_hat, rstd, batch_mean, batch_var = standardize(x, axes, eps)
        if count:
            bessel = count / (count - 1)
            new_mean = update_running(new_mean, batch_mean.ravel(), momentum)
            new_var = update_running(new_var, bessel * batch_var.ravel(), momentum)
    elif mean is None or var is None:
        raise ValueError(
            "running_mean, running_var: got None in evaluation; expected arrays of shape "
            f"({x.shape[1]},). Pass them, or set training=True"
        )
    else:
        rstd = 1.0 / np.sqrt(var + eps)
        x_hat = (x - mean) * rstd
    return affine(x_hat, w, b), BatchNormCache(x_hat, rstd, w, b, axes, training, new_mean, new_var)


def batch_norm_backward(dy: ArrayLike, cache: BatchNormCache) -> Gradients:
    r"""Gradients of :func:`batch_norm` in closed form.

    .. math:: dx = r\left(g - \bar g - \hat x \, \overline{g \odot \hat x}\right), \quad
              g = dy \odot w

    The bars are means over the batch and positions of a channel. In evaluation the statistics
    are constants and :math:`dx = r g`.

    Source:
        ioffe2015batch, Section 3, in closed form.
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    dx_hat, dweight, dbias = affine_backward(dy, cache.x_hat, cache.weight, cache.bias)
    if cache.training:
        dx = standardize_backward(dx_hat, cache.x_hat, cache.rstd, cache.axes)
    else:
        dx = cache.rstd * dx_hat
    return as_gradients(dx, dweight, dbias)


def batch_norm_backward_by_node(dy: ArrayLike, cache: BatchNormCache) -> dict[str, np.ndarray]:
    """The training gradient one node of the computation graph at a time, as in the paper.

    Returns:
        gradients by "x_hat", "var", "mean" and "x", in the paper's order. `mean` feeds
        `x_hat` and `var`; its second path adds up to zero and is written out here.

    Raises:
        ValueError: the cache is from evaluation.

    Source:
        ioffe2015batch, Section 3 (its six derivatives).
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    if not cache.training:
        raise ValueError("cache: got one from evaluation; expected one from training=True")
    axes, rstd = cache.axes, cache.rstd
    count = math.prod(dy.shape[axis] for axis in axes)
    centered = cache.x_hat / rstd

    dx_hat = dy if cache.weight is None else dy * cache.weight
    dvar = (dx_hat * centered).sum(axes, keepdims=True) * -0.5 * rstd**3
    through_var = dvar * -2.0 * centered.sum(axes, keepdims=True) / count  # is 0
    dmean = -(dx_hat * rstd).sum(axes, keepdims=True) + through_var
    dx = dx_hat * rstd + dvar * 2.0 * centered / count + dmean / count
    return {"x_hat": dx_hat, "var": dvar, "mean": dmean, "x": dx}


def batch_norm_jacobian(x: ArrayLike, eps: float = 1e-5) -> np.ndarray:
    """Jacobian (m, m) at the m values of one channel, in training; units 1/x.

    It is that of :func:`layer_norm_jacobian`: the outputs of a batch depend on each other.
    """
    return standardize_jacobian(x, eps)
