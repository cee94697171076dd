"""Batch renormalization in NumPy: forward and closed-form backward."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.reference.standardization import (
    Gradients,
    affine,
    affine_backward,
    standardize,
    standardize_backward,
)
from normlab.reference.validation import as_channel_vector, as_float64, check_upstream


class BatchRenormCache(NamedTuple):
    """What the backward pass needs.

    Attributes:
        x_hat: input standardized over the batch, before the correction.
        rstd: 1 / sqrt(var + eps) of the batch.
        r: factor of the correction, a constant.
        d: summand of the correction, a constant.
        weight: with the input's axes, or None.
        bias: with the input's axes, or None.
    """

    x_hat: np.ndarray
    rstd: np.ndarray
    r: np.ndarray
    d: np.ndarray
    weight: np.ndarray | None
    bias: np.ndarray | None


def batch_renorm(
    input: ArrayLike,
    running_mean: ArrayLike,
    running_var: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    r_max: float = 3.0,
    d_max: float = 5.0,
) -> tuple[np.ndarray, BatchRenormCache]:
    r"""The training pass of batch renormalization; the running statistics are left alone.

    .. math:: y = \left( \hat x \, r + d \right) w_c + b_c

    Args:
        input: (N, C, \*).
        running_mean: (C,).
        running_var: (C,), without eps.
        weight: (C,), or None.
        bias: (C,), or None.
        eps: units of x².
        r_max: largest correction of the scale.
        d_max: largest correction of the mean.

    Returns:
        the output, and what :func:`batch_renorm_backward` needs.

    Raises:
        ValueError: a shape that does not fit.

    Source:
        ioffe2017batch, Algorithm 1.

    Example:
        >>> batch_renorm([[0.0], [2.0]], [0.5], [4.0], eps=0.0)[0].ravel()
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
    x_hat, rstd, mean, _ = standardize(x, axes, eps)
    running_std = np.sqrt(spread + eps)
    r = np.clip(1.0 / (rstd * running_std), 1.0 / r_max, r_max)
    d = np.clip((mean - center) / running_std, -d_max, d_max)
    return affine(x_hat * r + d, w, b), BatchRenormCache(x_hat, rstd, r, d, w, b)


def batch_renorm_backward(dy: ArrayLike, cache: BatchRenormCache) -> Gradients:
    r"""Gradients in training: batch norm's, times r; the correction itself has none.

    Args:
        dy: gradient of the loss by the output.
        cache: from :func:`batch_renorm`.

    Returns:
        `dx`, and `dweight`, `dbias` of (C,) or None.

    Raises:
        ValueError: `dy` has another shape than the output.

    Source:
        ioffe2017batch, Section 3 (its chain of derivatives).
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    corrected = cache.x_hat * cache.r + cache.d
    g, dweight, dbias = affine_backward(dy, corrected, cache.weight, cache.bias)
    axes = (0, *range(2, dy.ndim))
    dx = standardize_backward(g * cache.r, cache.x_hat, cache.rstd, axes)
    return Gradients(
        dx,
        None if dweight is None else dweight.ravel(),
        None if dbias is None else dbias.ravel(),
    )
