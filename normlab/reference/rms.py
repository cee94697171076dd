"""RMSNorm in NumPy: forward and closed-form backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.norms import reduced_axes
from normlab.reference.standardization import Gradients, affine, affine_backward, as_gradients
from normlab.reference.validation import (
    as_float64,
    as_normalized,
    as_row,
    check_shape_norm,
    check_upstream,
)


class RMSNormCache(NamedTuple):
    """What the backward pass needs; see :class:`normlab.reference.LayerNormCache`.

    Attributes:
        x_hat: input divided by its root mean square.
        rrms: 1 / sqrt(mean(x²) + eps), with size 1 along `axes`; units 1/x.
    """

    x_hat: np.ndarray
    rrms: np.ndarray
    weight: np.ndarray | None
    axes: tuple[int, ...]
    normalized_shape: tuple[int, ...]


def rms_norm(
    input: ArrayLike,
    normalized_shape: Sequence[int],
    weight: ArrayLike | None = None,
    eps: float | None = None,
) -> tuple[np.ndarray, RMSNormCache]:
    r"""Divide each sample by the root mean square of its trailing `normalized_shape`.

    .. math:: y = \frac{x}{\sqrt{\frac1H \sum_i x_i^2 + \epsilon}} \odot w

    The arguments are those of :func:`normlab.layers.rms_norm`, as arrays of real numbers; an
    `eps` of None is the machine epsilon of float64.

    Raises:
        ValueError: a shape that does not fit.
        TypeError: `normalized_shape` is not a sequence, or an argument is not real numbers.

    Source:
        zhang2019root, Eq. 4 (without `eps` there).

    Example:
        >>> y, _ = rms_norm([[1.0, 7.0]], (2,), eps=0.0)
        >>> y
        array([[0.2, 1.4]])
    """
    x = as_float64("input", input)
    shape = check_shape_norm(x, normalized_shape)
    axes = reduced_axes("rms_norm", x.ndim, normalized_ndim=len(shape))
    w = as_normalized("weight", weight, x, shape)
    if eps is None:
        eps = float(np.finfo(np.float64).eps)
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    mean_square = np.square(x).mean(axes, keepdims=True) if x.size else np.ones(kept)
    rrms = 1.0 / np.sqrt(mean_square + eps)
    x_hat = x * rrms
    return affine(x_hat, w, None), RMSNormCache(x_hat, rrms, w, axes, shape)


def rms_norm_backward(dy: ArrayLike, cache: RMSNormCache) -> Gradients:
    r"""Gradients of :func:`rms_norm` in closed form; `dbias` is None.

    .. math:: dx = \rho \left(g - \hat x \, \overline{g \odot \hat x}\right), \quad
              g = dy \odot w, \quad dw = \sum dy \odot \hat x

    Source:
        zhang2019root, Eq. 8 to 10.
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    dx_hat, dweight, _ = affine_backward(dy, cache.x_hat, cache.weight, None)
    if cache.x_hat.size == 0:
        dx = np.zeros_like(cache.x_hat)
    else:
        through_square = (dx_hat * cache.x_hat).mean(cache.axes, keepdims=True)
        dx = cache.rrms * (dx_hat - cache.x_hat * through_square)
    return as_gradients(dx, dweight, None, cache.normalized_shape)


def rms_norm_backward_by_node(dy: ArrayLike, cache: RMSNormCache) -> dict[str, np.ndarray]:
    """Gradient of every intermediate value of RMSNorm, from the output to the input.

    Returns:
        gradients by `x_hat`, `rrms`, `mean_square`, `x`, in this order.
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    axes, rrms = cache.axes, cache.rrms
    count = int(np.prod(cache.normalized_shape))
    x = cache.x_hat / rrms

    dx_hat = dy if cache.weight is None else dy * cache.weight
    drrms = (dx_hat * x).sum(axes, keepdims=True)  # x_hat = x · rrms
    dmean_square = -0.5 * rrms**3 * drrms  # rrms = (mean_square + eps)^(-1/2)
    dx = dx_hat * rrms + dmean_square * 2.0 * x / count  # two paths lead to x
    return {"x_hat": dx_hat, "rrms": drrms, "mean_square": dmean_square, "x": dx}


def rms_norm_jacobian(x: ArrayLike, eps: float = 0.0) -> np.ndarray:
    r"""Jacobian (H, H) of RMSNorm without parameters at one row (H,); units 1/x.

    .. math:: J = \rho \left( I - \frac{1}{H} \hat x \hat x^\top \right)

    With `eps` 0 the bracket is the projection onto the space orthogonal to x̂.

    Source:
        the closed form of :func:`rms_norm_backward` for each unit vector; see also
        zhang2019root, Section 4.2.

    Example:
        >>> int(np.linalg.matrix_rank(rms_norm_jacobian([1.0, 2.0, 4.0])))
        2
    """
    row = as_row(x)
    _, cache = rms_norm(row, (row.size,), eps=eps)
    return cache.rrms * (np.eye(row.size) - np.outer(cache.x_hat, cache.x_hat) / row.size)
