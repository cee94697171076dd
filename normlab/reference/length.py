"""ScaleNorm in NumPy: forward and closed-form backward."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.reference.standardization import Gradients
from normlab.reference.validation import as_float64, check_upstream


class ScaleNormCache(NamedTuple):
    """What the backward pass needs.

    Attributes:
        direction: input divided by its length, or by eps where that is larger.
        rlength: what the input was multiplied by; units 1/x.
        bounded: where eps took the place of the length.
        weight: one number, or None.
    """

    direction: np.ndarray
    rlength: np.ndarray
    bounded: np.ndarray
    weight: float | None


def scale_norm(
    input: ArrayLike, weight: ArrayLike | None = None, eps: float = 1e-5
) -> tuple[np.ndarray, ScaleNormCache]:
    r"""Divide each vector by its length and multiply it by one number.

    .. math:: y = g \, \frac{x}{\max(\lVert x \rVert, \epsilon)}

    Args:
        input: vectors along the last axis.
        weight: g, one number, or None for 1.
        eps: units of x; no vector is divided by less.

    Raises:
        ValueError: the weight is not one number.

    Source:
        nguyen2019transformers.

    Example:
        >>> scale_norm([[3.0, 4.0]], 10.0)[0]
        array([[6., 8.]])
    """
    x = as_float64("input", input)
    g = None if weight is None else as_float64("weight", weight)
    if g is not None and g.size != 1:
        raise ValueError(f"weight: got shape {g.shape}; expected one number, ()")
    factor = None if g is None else g.item()
    length = np.sqrt(np.square(x).sum(-1, keepdims=True))
    rlength = 1.0 / np.maximum(length, eps)
    direction = x * rlength
    y = direction if factor is None else factor * direction
    return y, ScaleNormCache(direction, rlength, length < eps, factor)


def scale_norm_backward(dy: ArrayLike, cache: ScaleNormCache) -> Gradients:
    r"""Gradients of :func:`scale_norm`: the part along the vector is taken out; `dbias` is None.

    .. math:: dx = \frac{g}{\lVert x \rVert} \left( dy - u \, (u \cdot dy) \right), \qquad
              u = \frac{x}{\lVert x \rVert}, \qquad dg = \sum u \cdot dy
    """
    dy = check_upstream(dy, cache.direction.shape)
    along = (cache.direction * dy).sum(-1, keepdims=True)
    radial = np.where(cache.bounded, 0.0, cache.direction * along)  # a constant has no slope
    dx = cache.rlength * (dy - radial) * (1.0 if cache.weight is None else cache.weight)
    return Gradients(dx, None if cache.weight is None else along.sum(), None)
