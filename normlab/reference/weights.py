"""Weight norm and weight standardization in NumPy: forward and closed-form backward."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.reference.standardization import standardize, standardize_backward
from normlab.reference.validation import as_float64, check_upstream


class WeightNormCache(NamedTuple):
    """What the backward pass needs: length and direction of each row, and its factor."""

    rlength: np.ndarray
    direction: np.ndarray
    g: np.ndarray


class WeightNormGradients(NamedTuple):
    """Gradients by the direction vectors and the lengths."""

    dv: np.ndarray
    dg: np.ndarray


class WeightStandardizationCache(NamedTuple):
    """What the backward pass needs: standardized rows and 1 / sqrt(var + eps)."""

    w_hat: np.ndarray
    rstd: np.ndarray


def weight_norm(v: ArrayLike, g: ArrayLike) -> tuple[np.ndarray, WeightNormCache]:
    r"""Each row as a length times a direction.

    .. math:: w_i = g_i \frac{v_i}{\lVert v_i \rVert}

    Args:
        v: (out, \*); all axes but the first belong to a row.
        g: (out,).

    Source:
        salimans2016weight, Eq. 2.

    Example:
        >>> weight_norm([[3.0, 4.0]], [10.0])[0]
        array([[6., 8.]])
    """
    v = as_float64("v", v)
    rows = tuple(range(1, v.ndim))
    factor = as_float64("g", g).reshape(-1, *(1,) * len(rows))
    rlength = 1.0 / np.sqrt(np.square(v).sum(rows, keepdims=True))
    direction = v * rlength
    return factor * direction, WeightNormCache(rlength, direction, factor)


def weight_norm_backward(dw: ArrayLike, cache: WeightNormCache) -> WeightNormGradients:
    r"""Gradients by v and g: the part along v goes to g, the rest to v.

    .. math:: dg = u \cdot dw, \qquad dv = \frac{g}{\lVert v \rVert} (dw - u \, (u \cdot dw))

    Source:
        salimans2016weight, Eq. 3.
    """
    dw = check_upstream(dw, cache.direction.shape)
    along = (cache.direction * dw).sum(tuple(range(1, dw.ndim)), keepdims=True)
    dv = cache.g * cache.rlength * (dw - cache.direction * along)
    return WeightNormGradients(dv, along.ravel())


def weight_standardization(
    v: ArrayLike, eps: float = 1e-5
) -> tuple[np.ndarray, WeightStandardizationCache]:
    r"""Each row with mean 0 and variance 1.

    .. math:: \hat w_i = \frac{v_i - \overline{v_i}}{\sqrt{\mathrm{var}(v_i) + \epsilon}}

    Args:
        v: (out, \*); all axes but the first belong to a row.
        eps: units of v².

    Source:
        qiao2019micro.

    Example:
        >>> weight_standardization([[1.0, 3.0]], eps=0.0)[0]
        array([[-1.,  1.]])
    """
    v = as_float64("v", v)
    w_hat, rstd, _, _ = standardize(v, tuple(range(1, v.ndim)), eps)
    return w_hat, WeightStandardizationCache(w_hat, rstd)


def weight_standardization_backward(dw: ArrayLike, cache: WeightStandardizationCache) -> np.ndarray:
    """Gradient by v: it sums to 0 over each row and is orthogonal to the standardized row."""
    dw = check_upstream(dw, cache.w_hat.shape)
    return standardize_backward(dw, cache.w_hat, cache.rstd, tuple(range(1, dw.ndim)))
