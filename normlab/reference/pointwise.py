"""DyT and Derf in NumPy: forward and closed-form backward."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.reference.validation import as_float64, as_normalized, check_upstream

_erf = np.vectorize(math.erf, otypes=[np.float64])


class PointwiseCache(NamedTuple):
    """What the backward pass needs.

    Attributes:
        x: the input.
        squashed: the output before weight and bias.
        slope: derivative of `squashed` by its argument.
        alpha: factor of the input.
        weight: with the input's axes, or None.
        shape: of weight and bias, or None without them.
        has_bias: whether a bias was added.
    """

    x: np.ndarray
    squashed: np.ndarray
    slope: np.ndarray
    alpha: float
    weight: np.ndarray | None
    shape: tuple[int, ...] | None
    has_bias: bool


class DyTGradients(NamedTuple):
    """Gradients by the input, alpha, weight and bias; None where there is no such parameter."""

    dx: np.ndarray
    dalpha: float
    dweight: np.ndarray | None
    dbias: np.ndarray | None


class DerfGradients(NamedTuple):
    """Gradients by the input, alpha, shift, weight and bias; None where there is none."""

    dx: np.ndarray
    dalpha: float
    dshift: float
    dweight: np.ndarray | None
    dbias: np.ndarray | None


def _forward(
    x: np.ndarray,
    squashed: np.ndarray,
    slope: np.ndarray,
    alpha: float,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
) -> tuple[np.ndarray, PointwiseCache]:
    given = next((np.shape(p) for p in (weight, bias) if p is not None), None)
    w = None if given is None else as_normalized("weight", weight, x, given)
    b = None if given is None else as_normalized("bias", bias, x, given)
    y = squashed if w is None else squashed * w
    y = y if b is None else y + b
    return y, PointwiseCache(x, squashed, slope, alpha, w, given, b is not None)


def _backward(
    dy: ArrayLike, cache: PointwiseCache
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Gradients by the squashing function's argument, by x, weight and bias."""
    dy = check_upstream(dy, cache.x.shape)
    dsquashed = dy if cache.weight is None else dy * cache.weight
    dargument = dsquashed * cache.slope
    rows = tuple(range(cache.x.ndim - len(cache.shape or ())))
    dweight = None if cache.weight is None else (dy * cache.squashed).sum(rows)
    dbias = dy.sum(rows) if cache.has_bias else None
    return dargument, dargument * cache.alpha, dweight, dbias


def dyt(
    input: ArrayLike, alpha: float, weight: ArrayLike | None = None, bias: ArrayLike | None = None
) -> tuple[np.ndarray, PointwiseCache]:
    r"""Dynamic tanh.

    .. math:: y = \tanh(\alpha x) \odot w + b

    Args:
        input: numbers.
        alpha: one number; units 1/x.
        weight: of the last sizes of `input`, or None.
        bias: as `weight`, or None.

    Raises:
        ValueError: a weight or bias that does not fit.

    Source:
        zhu2025transformers.

    Example:
        >>> dyt([-99.0, 0.0, 99.0], 0.5)[0]
        array([-1.,  0.,  1.])
    """
    x = as_float64("input", input)
    t = np.tanh(float(alpha) * x)
    return _forward(x, t, 1.0 - t * t, float(alpha), weight, bias)


def dyt_backward(dy: ArrayLike, cache: PointwiseCache) -> DyTGradients:
    r"""Gradients of :func:`dyt`.

    .. math:: dx = \alpha \, (1 - \tanh^2 \alpha x) \odot w \odot dy, \qquad
              d\alpha = \sum x \, (1 - \tanh^2 \alpha x) \odot w \odot dy
    """
    dargument, dx, dweight, dbias = _backward(dy, cache)
    return DyTGradients(dx, float((dargument * cache.x).sum()), dweight, dbias)


def derf(
    input: ArrayLike,
    alpha: float,
    shift: float,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
) -> tuple[np.ndarray, PointwiseCache]:
    r"""Dynamic erf; see :func:`dyt` for what the arguments share with it.

    .. math:: y = \operatorname{erf}(\alpha x + s) \odot w + b

    Args:
        input: numbers.
        alpha: one number; units 1/x.
        shift: one number, s.
        weight: of the last sizes of `input`, or None.
        bias: as `weight`, or None.

    Source:
        chen2025stronger, Eq. 10.

    Example:
        >>> derf([-99.0, 0.0, 99.0], 0.5, 0.0)[0]
        array([-1.,  0.,  1.])
    """
    x = as_float64("input", input)
    argument = float(alpha) * x + float(shift)
    slope = 2.0 / math.sqrt(math.pi) * np.exp(-(argument**2))
    return _forward(x, _erf(argument), slope, float(alpha), weight, bias)


def derf_backward(dy: ArrayLike, cache: PointwiseCache) -> DerfGradients:
    r"""Gradients of :func:`derf`.

    .. math:: dx = \alpha \, \frac{2}{\sqrt\pi} e^{-(\alpha x + s)^2} \odot w \odot dy
    """
    dargument, dx, dweight, dbias = _backward(dy, cache)
    dalpha, dshift = float((dargument * cache.x).sum()), float(dargument.sum())
    return DerfGradients(dx, dalpha, dshift, dweight, dbias)
