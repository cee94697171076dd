"""RMS norm with a zero-centered weight in NumPy: forward and closed-form backward."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from normlab.reference.rms import RMSNormCache, rms_norm, rms_norm_backward
from normlab.reference.standardization import Gradients
from normlab.reference.validation import as_float64


def zero_centered_rms_norm(
    input: ArrayLike,
    normalized_shape: Sequence[int],
    weight: ArrayLike | None = None,
    eps: float | None = 1e-6,
) -> tuple[np.ndarray, RMSNormCache]:
    r"""Divide each sample by its root mean square and multiply it by one plus the weight.

    .. math:: y = \frac{x}{\sqrt{\frac1H \sum_i x_i^2 + \epsilon}} \odot (1 + w)

    Args:
        input: numbers of shape (\*, normalized_shape).
        normalized_shape: the last sizes of `input`; their product is H.
        weight: of `normalized_shape`, or None for 0.
        eps: units of x²; None takes the machine epsilon of float64.

    Raises:
        ValueError: a shape that does not fit.
        TypeError: `normalized_shape` is not a sequence, or an argument is not real numbers.

    Source:
        zhang2019root, Eq. 4, for the norm; the factor is that of the Gemma models.

    Example:
        >>> zero_centered_rms_norm([[1.0, 7.0]], (2,), [0.0, 1.0], eps=0.0)[0]
        array([[0.2, 2.8]])
    """
    factor = None if weight is None else np.asarray(1.0 + as_float64("weight", weight))
    return rms_norm(input, normalized_shape, factor, eps)


def zero_centered_rms_norm_backward(dy: ArrayLike, cache: RMSNormCache) -> Gradients:
    """Gradients in closed form: those of RMS norm, whose weight is a constant away."""
    return rms_norm_backward(dy, cache)
