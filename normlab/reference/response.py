"""Filter and global response norm in NumPy: forward and closed-form backward."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.reference.standardization import Gradients, affine
from normlab.reference.validation import as_channel_vector, as_float64, check_upstream


class FilterResponseCache(NamedTuple):
    """What the backward pass needs.

    Attributes:
        x_hat: input divided by its root mean square.
        rrms: 1 / sqrt(mean(x²) + eps) for each channel of a sample; units 1/x.
        cut: where the threshold took the place of the value.
        weight: with the input's axes, or None.
        has_bias: whether a bias was added.
        has_threshold: whether there was a threshold.
    """

    x_hat: np.ndarray
    rrms: np.ndarray
    cut: np.ndarray
    weight: np.ndarray | None
    has_bias: bool
    has_threshold: bool


class FilterResponseGradients(NamedTuple):
    """Gradients by the input, weight, bias and threshold; None where there is none."""

    dx: np.ndarray
    dweight: np.ndarray | None
    dbias: np.ndarray | None
    dthreshold: np.ndarray | None


class GlobalResponseCache(NamedTuple):
    """What the backward pass needs.

    Attributes:
        x: the input.
        length: of each channel of a sample over its positions; units of x.
        mean_length: mean over the channels plus eps; units of x.
        weight: with the input's axes, or None.
        has_bias: whether a bias was added.
    """

    x: np.ndarray
    length: np.ndarray
    mean_length: np.ndarray
    weight: np.ndarray | None
    has_bias: bool


def _positions(x: np.ndarray) -> tuple[int, ...]:
    if x.ndim < 3:
        raise ValueError(f"input: got shape {x.shape}; expected (N, C, *) with positions")
    return tuple(range(2, x.ndim))


def _sum_to_channels(values: np.ndarray) -> np.ndarray:
    return values.sum((0, *range(2, values.ndim)))


def filter_response_norm(
    input: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    threshold: ArrayLike | None = None,
    eps: float = 1e-6,
) -> tuple[np.ndarray, FilterResponseCache]:
    r"""Divide each channel of a sample by its root mean square, and cut it off from below.

    .. math:: y = \max\!\left(\frac{x}{\sqrt{\nu^2 + |\epsilon|}} \, w_c + b_c, \; \tau_c\right)

    Args:
        input: (N, C, \*) with positions.
        weight: (C,), or None.
        bias: (C,), or None.
        threshold: (C,), or None for no bound.
        eps: units of x².

    Raises:
        ValueError: a shape that does not fit.

    Source:
        singh2020filter.

    Example:
        >>> filter_response_norm([[[3.0, -3.0, 3.0]]], threshold=[0.0], eps=0.0)[0]
        array([[[1., 0., 1.]]])
    """
    x = as_float64("input", input)
    positions = _positions(x)
    w = as_channel_vector("weight", weight, x)
    b = as_channel_vector("bias", bias, x)
    t = as_channel_vector("threshold", threshold, x)
    rrms = 1.0 / np.sqrt(np.square(x).mean(positions, keepdims=True) + abs(eps))
    x_hat = x * rrms
    y = affine(x_hat, w, b)
    cut = np.zeros(x.shape, bool) if t is None else y < t
    y = y if t is None else np.maximum(y, t)
    return y, FilterResponseCache(x_hat, rrms, cut, w, b is not None, t is not None)


def filter_response_norm_backward(
    dy: ArrayLike, cache: FilterResponseCache
) -> FilterResponseGradients:
    r"""Gradients of :func:`filter_response_norm`: what was cut off goes to the threshold.

    .. math:: dx = \rho \left(g - \hat x \, \overline{g \odot \hat x}\right), \qquad
              g = w \odot dy \odot [y > \tau]
    """
    dy = check_upstream(dy, cache.x_hat.shape)
    passed = np.where(cache.cut, 0.0, dy)
    g = passed if cache.weight is None else passed * cache.weight
    positions = tuple(range(2, dy.ndim))
    through_square = (g * cache.x_hat).mean(positions, keepdims=True)
    dx = cache.rrms * (g - cache.x_hat * through_square)
    return FilterResponseGradients(
        dx,
        None if cache.weight is None else _sum_to_channels(passed * cache.x_hat),
        _sum_to_channels(passed) if cache.has_bias else None,
        _sum_to_channels(dy - passed) if cache.has_threshold else None,
    )


def global_response_norm(
    input: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-6,
) -> tuple[np.ndarray, GlobalResponseCache]:
    r"""Strengthen the channels that are long beside their neighbors, and add the input.

    .. math:: y = x + w_c \, x \, \frac{G_c}{\frac1C \sum_k G_k + \epsilon} + b_c

    Args:
        input: (N, C, \*) with positions.
        weight: (C,), or None.
        bias: (C,), or None.
        eps: units of x.

    Raises:
        ValueError: a shape that does not fit.

    Source:
        woo2023convnext.

    Example:
        >>> global_response_norm([[[1.0], [3.0]]], eps=0.0)[0].ravel()
        array([1.5, 7.5])
    """
    x = as_float64("input", input)
    positions = _positions(x)
    w = as_channel_vector("weight", weight, x)
    b = as_channel_vector("bias", bias, x)
    length = np.sqrt(np.square(x).sum(positions, keepdims=True))
    mean_length = length.mean(1, keepdims=True) + eps
    y = affine(x * (length / mean_length), w, b)
    return x + y, GlobalResponseCache(x, length, mean_length, w, b is not None)


def global_response_norm_backward(dy: ArrayLike, cache: GlobalResponseCache) -> Gradients:
    r"""Gradients of :func:`global_response_norm`; each channel's length acts on all channels.

    .. math:: dx = dy + N \odot g + \frac{x_c}{G_c} \, dG_c, \quad g = w \odot dy, \quad
              dG_c = \frac{dN_c}{m} - \frac{1}{C m^2} \sum_k dN_k G_k

    Here N = G / m, and m is the mean length plus eps.
    """
    dy = check_upstream(dy, cache.x.shape)
    positions = tuple(range(2, dy.ndim))
    relative = cache.length / cache.mean_length
    g = dy if cache.weight is None else dy * cache.weight
    drelative = (g * cache.x).sum(positions, keepdims=True)
    through_mean = (drelative * cache.length).mean(1, keepdims=True) / cache.mean_length**2
    dlength = drelative / cache.mean_length - through_mean
    unit = np.divide(cache.x, cache.length, out=np.zeros_like(cache.x), where=cache.length > 0)
    dx = dy + g * relative + unit * dlength
    dweight = None if cache.weight is None else _sum_to_channels(dy * cache.x * relative)
    return Gradients(dx, dweight, _sum_to_channels(dy) if cache.has_bias else None)
