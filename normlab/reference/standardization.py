"""Forward and backward of the step that the centered norms share."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.reference.moments import corrected_two_pass
from normlab.reference.validation import as_row


class Gradients(NamedTuple):
    """Gradients of a scalar loss.

    Attributes:
        dx: by the input, of its shape.
        dweight: by the weight, or None without one.
        dbias: by the bias, or None without one.
    """

    dx: np.ndarray
    dweight: np.ndarray | None
    dbias: np.ndarray | None


def standardize(
    x: np.ndarray, axes: tuple[int, ...], eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    r"""Center `x` over `axes` and divide by the root of the biased variance plus `eps`.

    .. math:: \hat x = (x - \mu) \, r, \qquad r = \frac{1}{\sqrt{\sigma^2 + \epsilon}}

    Returns:
        `x_hat` of the shape of `x`, and `rstd` (in 1/x), `mean`, `var` with size 1 along `axes`.

    Source:
        ioffe2015batch, Algorithm 1; ba2016layer, Eq. 3.
    """
    if x.size == 0:  # nothing to average: NumPy would warn
        empty = np.zeros(tuple(1 if a in axes else n for a, n in enumerate(x.shape)))
        return np.zeros_like(x), empty, empty, empty
    _, mean, var = corrected_two_pass(x, axes)
    rstd = 1.0 / np.sqrt(var + eps)
    return (x - mean) * rstd, rstd, mean, var


def standardize_backward(
    dx_hat: np.ndarray, x_hat: np.ndarray, rstd: np.ndarray, axes: tuple[int, ...]
) -> np.ndarray:
    r"""Gradient by the input of :func:`standardize`, with mean and variance differentiated.

    .. math:: dx = r \left( d\hat x - \overline{d\hat x}
              - \hat x \; \overline{d\hat x \odot \hat x} \right)

    The bars are means over `axes`. The two subtracted terms are what reaches `x` through the
    mean and through the variance.

    Source:
        ioffe2015batch, Section 3, its chain of derivatives in closed form.
    """
    if x_hat.size == 0:
        return np.zeros_like(x_hat)
    through_mean = dx_hat.mean(axes, keepdims=True)
    through_var = x_hat * (dx_hat * x_hat).mean(axes, keepdims=True)
    return rstd * (dx_hat - through_mean - through_var)


def standardize_backward_by_node(
    dx_hat: np.ndarray, x_hat: np.ndarray, rstd: np.ndarray, axes: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """The same gradient one node of the computation graph at a time."""
    count = max(1, math.prod(x_hat.shape[axis] for axis in axes))  # no cells: no division by 0
    centered = x_hat / rstd
    drstd = (dx_hat * centered).sum(axes, keepdims=True)  # x_hat = centered · rstd
    dvar = -0.5 * rstd**3 * drstd  # rstd = (var + eps)^(-1/2)
    dcentered = dx_hat * rstd + dvar * 2.0 * centered / count  # two paths lead to centered
    dmean = -dcentered.sum(axes, keepdims=True)  # centered = x - mean
    dx = dcentered + dmean / count  # mean = sum(x) / count
    return {
        "x_hat": dx_hat,
        "rstd": drstd,
        "var": dvar,
        "centered": dcentered,
        "mean": dmean,
        "x": dx,
    }


def standardize_jacobian(x: ArrayLike, eps: float) -> np.ndarray:
    """Jacobian of :func:`standardize` at one row (H,), (H, H) and symmetric."""
    row = as_row(x)
    size = row.size
    x_hat, rstd, _, _ = standardize(row, (0,), eps)
    return rstd * (np.eye(size) - np.ones((size, size)) / size - np.outer(x_hat, x_hat) / size)


def affine(x_hat: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None) -> np.ndarray:
    """`x_hat * weight + bias`, where None stands for no factor and no summand."""
    y = x_hat if weight is None else x_hat * weight
    return y if bias is None else y + bias


def affine_backward(
    dy: np.ndarray, x_hat: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    r"""Gradients of :func:`affine` by `x_hat`, `weight` and `bias`.

    .. math:: d\hat x = dy \odot w, \qquad dw = \sum dy \odot \hat x, \qquad db = \sum dy

    The sums run over the axes along which weight and bias were broadcast: those of size 1.
    """
    dx_hat = dy if weight is None else dy * weight
    dweight = None if weight is None else _sum_to(dy * x_hat, weight.shape)
    dbias = None if bias is None else _sum_to(dy, bias.shape)
    return dx_hat, dweight, dbias


def _sum_to(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    broadcast = tuple(a for a, n in enumerate(shape) if n == 1)
    return values.sum(broadcast, keepdims=True)


def as_gradients(
    dx: np.ndarray,
    dweight: np.ndarray | None,
    dbias: np.ndarray | None,
    shape: tuple[int, ...] = (-1,),
) -> Gradients:
    """Gradients by weight and bias in the shape that these have, here one axis; None stays None."""
    return Gradients(dx, *(None if d is None else d.reshape(shape) for d in (dweight, dbias)))


def update_running(
    running: np.ndarray | None, batch_value: np.ndarray, momentum: float
) -> np.ndarray | None:
    """Running value after one more batch, whose weight is `momentum`; None stays None."""
    return None if running is None else (1 - momentum) * running + momentum * batch_value
