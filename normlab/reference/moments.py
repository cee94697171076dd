"""Five ways to compute a mean and a variance, from the one that fails to the one that does not.

Every function keeps the dtype of its input, so that the rounding it suffers can be seen;
the norms in this package call the corrected two-pass form in float64. Arguments and results of all
are those of :func:`naive_one_pass`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Axis = int | tuple[int, ...] | None


class Moments(NamedTuple):
    """Count, mean and biased variance of some values.

    Attributes:
        n: number of values behind each mean.
        mean: units of x.
        var: divisor `n`; units of x².
    """

    n: int
    mean: np.ndarray
    var: np.ndarray


def _floats(x: ArrayLike) -> np.ndarray:
    x = np.asarray(x)
    return x if np.issubdtype(x.dtype, np.floating) else x.astype(np.float64)


def _count(x: np.ndarray, axis: Axis) -> int:
    if axis is None:
        return x.size
    return int(np.prod([x.shape[a] for a in np.atleast_1d(axis)], dtype=np.int64))


def naive_one_pass(x: ArrayLike, axis: Axis = None) -> Moments:
    r"""Mean of squares minus square of the mean: cancels when the mean is large.

    .. math:: \sigma^2 = \frac1n \sum x_i^2 - \mu^2

    Args:
        x: values; integers become float64.
        axis: axes to reduce; None for all.

    Shape:
        the reduced axes stay with size 1.

    Returns:
        moments whose variance may be wrong in every digit, or negative.

    Source:
        chan1983algorithms, Eq. 1.1 and 1.2 (the textbook one-pass algorithm).

    Example:
        >>> naive_one_pass(np.float32([1e4 - 1, 1e4 + 1])).var.item()
        0.0
    """
    x = _floats(x)
    mean = x.mean(axis, keepdims=True)
    return Moments(_count(x, axis), mean, np.square(x).mean(axis, keepdims=True) - np.square(mean))


def two_pass(x: ArrayLike, axis: Axis = None) -> Moments:
    r"""First the mean, then the mean of squared differences from it.

    .. math:: \sigma^2 = \frac1n \sum (x_i - \mu)^2

    Source:
        chan1983algorithms, Section 1.

    Example:
        >>> two_pass(np.float32([1e4 - 1, 1e4 + 1])).var.item()
        1.0
    """
    x = _floats(x)
    mean = x.mean(axis, keepdims=True)
    return Moments(_count(x, axis), mean, np.square(x - mean).mean(axis, keepdims=True))


def corrected_two_pass(x: ArrayLike, axis: Axis = None) -> Moments:
    r"""Two passes, and a third for what rounding took from the mean.

    .. math:: \delta = \frac1n \sum (x_i - \mu), \qquad
              \sigma^2 = \frac1n \sum (x_i - \mu - \delta)^2

    Source:
        chan1983algorithms, Eq. 1.7, in the form that corrects the differences themselves.
    """
    x = _floats(x)
    mean = x.mean(axis, keepdims=True)
    centered = x - mean
    missed = centered.mean(axis, keepdims=True)
    var = np.square(centered - missed).mean(axis, keepdims=True)
    return Moments(_count(x, axis), mean + missed, var)


def welford(x: ArrayLike, axis: Axis = None) -> Moments:
    r"""One pass that never subtracts large sums: update mean and sum of squares value by value.

    .. math:: \mu_k = \mu_{k-1} + \frac{x_k - \mu_{k-1}}{k}, \qquad
              S_k = S_{k-1} + (x_k - \mu_{k-1})(x_k - \mu_k)

    Raises:
        ValueError: there is no value to reduce.

    Source:
        welford1962note, Eq. I and II.
    """
    x = _floats(x)
    axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis) % x.ndim)
    count = _count(x, axes)
    if count == 0:
        raise ValueError(f"x: got shape {x.shape}, no value along axes {axes}; expected some")
    kept = tuple(a for a in range(x.ndim) if a not in axes)
    rows = x.transpose(*axes, *kept).reshape(count, *(x.shape[a] for a in kept))
    mean = np.zeros_like(rows[0])
    sum_of_squares = np.zeros_like(rows[0])
    for k, value in enumerate(rows, start=1):
        difference = value - mean
        mean = mean + difference / x.dtype.type(k)
        sum_of_squares = sum_of_squares + difference * (value - mean)
    shape = tuple(1 if a in axes else size for a, size in enumerate(x.shape))
    var = sum_of_squares / x.dtype.type(count)
    return Moments(count, np.reshape(mean, shape), np.reshape(var, shape))


def merge(a: Moments, b: Moments) -> Moments:
    r"""Moments of two disjoint sets of values together, without seeing the values again.

    .. math:: \mu = \mu_a + \delta \frac{n_b}{n}, \qquad
              n \sigma^2 = n_a \sigma_a^2 + n_b \sigma_b^2 + \delta^2 \frac{n_a n_b}{n},
              \qquad \delta = \mu_b - \mu_a

    Args:
        a: moments of the first set.
        b: moments of the second set, of the same shape.

    Raises:
        ValueError: both sets are empty.

    Source:
        chan1983algorithms, Eq. 2.1.

    Example:
        >>> both = merge(two_pass([0.0, 2.0]), two_pass([10.0]))
        >>> both.n, float(both.mean[0])
        (3, 4.0)
    """
    n = a.n + b.n
    if n == 0:
        raise ValueError("a, b: got two empty sets; expected at least one value")
    if 0 in (a.n, b.n):
        return a if b.n == 0 else b
    difference = b.mean - a.mean
    mean = a.mean + difference * (b.n / n)
    between = np.square(difference) * (a.n / n) * (b.n / n)
    return Moments(n, mean, a.var * (a.n / n) + b.var * (b.n / n) + between)
