"""Batch renormalization in NumPy: forward and closed-form backward."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.reference.running import update_running
from normlab.reference.standardization import (
    Gradients,
    affine,
    affine_backward,
    as_gradients,
    standardize,
    standardize_backward,
)
from normlab.reference.validation import as_channel_vector, as_float64, check_upstream


class BatchRenormCache(NamedTuple):
    """What the backward pass needs; x_hat and rstd are those before the correction by r and d.

    Attributes:
        training: whether the statistics were the batch's.
        running_mean: the new one, (C,).
        running_var: the new one, (C,).
    """

    x_hat: np.ndarray
    rstd: np.ndarray
    r: np.ndarray
    d: np.ndarray
    weight: np.ndarray | None
    bias: np.ndarray | None
    training: bool
    running_mean: np.ndarray | None
    running_var: np.ndarray | None


def batch_renorm(
    input: ArrayLike,
    running_mean: ArrayLike,
    running_var: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    r_max: float = 3.0,
    d_max: float = 5.0,
) -> tuple[np.ndarray, BatchRenormCache]:
    r"""Batch renormalization in training, or batch norm in evaluation, in float64.

    .. math:: y = \left( \hat x \, r + d \right) w_c + b_c

    Args:
        input: (N, C, \*).
        running_mean: (C,).
        running_var: (C,), without eps.
        weight: (C,), or None.
        bias: (C,), or None.
        training: use, correct and record the statistics of this batch.
        momentum: weight of the new batch in the running statistics.
        eps: units of x².
        r_max: largest correction of the scale.
        d_max: largest correction of the mean.

    Returns:
        the output, and a cache for :func:`batch_renorm_backward` that also holds the new running
        statistics: this function is pure and leaves its arguments as they are.

    Raises:
        ValueError: a shape that does not fit, no running statistics, or one value per channel in
            training.

    Conventions:
        normalizes with the biased variance, records the Bessel-corrected one.

    Source:
        ioffe2017batch, Algorithm 1.

    Example:
        >>> batch_renorm([[0.0], [2.0]], [0.5], [4.0], training=True, eps=0.0)[0].ravel()
        array([-0.25,  0.75])
    """
    x = as_float64("input", input)
    if x.ndim < 2:
        raise ValueError(f"input: got shape {x.shape}; expected (N, C, *)")
    axes = (0, *range(2, x.ndim))
    center = as_channel_vector("running_mean", running_mean, x)
    spread = as_channel_vector("running_var", running_var, x)
    if center is None or spread is None:
        raise ValueError("running_mean, running_var: got None; expected both, of shape (C,)")
    w, b = as_channel_vector("weight", weight, x), as_channel_vector("bias", bias, x)
    running_std = np.sqrt(spread + eps)
    new_mean: np.ndarray | None = center.ravel()
    new_var: np.ndarray | None = spread.ravel()
    if training:
        count = math.prod(x.shape[:1] + x.shape[2:])
        if count == 1:
            raise ValueError(
                f"input: got shape {x.shape}, one value per channel in training, whose variance "
                "is 0; expected more than one. Use a larger batch or training=False"
            )
        x_hat, rstd, mean, var = standardize(x, axes, eps)
        r = np.clip(1.0 / (rstd * running_std), 1.0 / r_max, r_max)
        d = np.clip((mean - center) / running_std, -d_max, d_max)
        if count:
            new_mean = update_running(new_mean, mean.ravel(), momentum)
            new_var = update_running(new_var, count / (count - 1) * var.ravel(), momentum)
    else:
        rstd, r, d = 1.0 / running_std, np.ones_like(center), np.zeros_like(center)
        x_hat = (x - center) * rstd
    cache = BatchRenormCache(x_hat, rstd, r, d, w, b, training, new_mean, new_var)
    return affine(x_hat * r + d, w, b), cache


def batch_renorm_backward(dy: ArrayLike, cache: BatchRenormCache) -> Gradients:
    """Gradients: in training batch norm's, times r; the correction itself has none.

    Source:
        ioffe2017batch, Section 3 (its chain of derivatives).
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    corrected = cache.x_hat * cache.r + cache.d
    g, dweight, dbias = affine_backward(dy, corrected, cache.weight, cache.bias)
    axes = (0, *range(2, dy.ndim))
    if cache.training:
        dx = standardize_backward(g * cache.r, cache.x_hat, cache.rstd, axes)
    else:
        dx = g * cache.rstd
    return as_gradients(dx, dweight, dbias)
