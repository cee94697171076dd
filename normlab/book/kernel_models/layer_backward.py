"""LayerNorm's input gradient on CPU: two sums a row, three numbers, and a line in dy and x."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.book.kernel_models.rounding import StoredDtype, fused_multiply_add, round_to
from normlab.book.kernel_models.vector_sums import sum_in_lanes


class BackwardCoefficients(NamedTuple):
    """What the backward kernel computes for a row before it writes dx = a·dy·w + b·x + c.

    Attributes:
        ds: (rows,), the sum of dy·w·x.
        db: (rows,), the sum of dy·w.
        a: (rows,), which is rstd.
        b: (rows,).
        c: (rows,).
    """

    ds: np.ndarray
    db: np.ndarray
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray


def backward_coefficients(
    ds: ArrayLike, db: ArrayLike, mean: ArrayLike, rstd: ArrayLike, n: int, *, fused: bool = True
) -> BackwardCoefficients:
    r"""The three coefficients of dx.

    .. math:: a = r, \qquad b = (db \, \mu - ds)\, \frac{r^3}{n}, \qquad
              c = -b \mu - \frac{db \, r}{n}

    Why this is the textbook gradient: :math:`ds - \mu\, db = \sum g \hat x / r` with
    :math:`g = dy \odot w`, so :math:`b x + c = b (x - \mu) - db\, r / n
    = -r \hat x\, \overline{g \hat x} - r \bar g`.

    Args:
        ds: (rows,), the sum of dy·w·x.
        db: (rows,), the sum of dy·w.
        mean: (rows,), as saved by the forward pass.
        rstd: (rows,), as saved by the forward pass.
        n: features of a row.
        fused: multiply and add round once.

    Conventions:
        float32 throughout; `db * mean - ds` subtracts two sums that grow with the mean.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp, `layer_norm_backward_frame`.

    Example:
        >>> found = backward_coefficients([2.0], [1.0], [0.5], [1.0], n=4)
        >>> float(found.a[0]), float(found.b[0]), float(found.c[0])
        (1.0, -0.375, -0.0625)
    """
    ds, db, mean, a = (np.asarray(v, dtype=np.float32) for v in (ds, db, mean, rstd))
    scale = np.float32(1) / np.float32(n)
    b = fused_multiply_add(db, mean, -ds, fused=fused) * a * a * a * scale
    c = fused_multiply_add(-b, mean, -(db * a * scale), fused=fused)
    return BackwardCoefficients(ds, db, a, b, c)


def input_gradient(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    dtype: StoredDtype = "float32",
    lanes: int = 8,
    fused: bool = True,
) -> np.ndarray:
    """The gradient by the input, (rows, n), as the CPU kernel computes it.

    Args:
        dy: float32 of shape (rows, n).
        x: float32 of shape (rows, n).
        mean: (rows,), as saved by the forward pass.
        rstd: (rows,), as saved by the forward pass.
        weight: (n,), or None for 1.
        dtype: how torch stores dx; the sums are in float32.
        lanes: float32 values in a vector register.
        fused: multiply and add round once.

    Raises:
        ValueError: dy and x differ in shape.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp, `layer_norm_backward_frame`.

    Example:
        >>> input_gradient([[1.0, 0.0]], [[-1.0, 1.0]], [0.0], [1.0])  # x_hat and 1 lie in its way
        array([[0., 0.]], dtype=float32)
    """
    dy, x = np.asarray(dy, dtype=np.float32), np.asarray(x, dtype=np.float32)
    if dy.shape != x.shape or x.ndim != 2:
        raise ValueError(f"dy, x: got shapes {dy.shape}, {x.shape}; expected (rows, n) twice")
    if weight is None:
        ds = sum_in_lanes(dy, x, dtype=dtype, lanes=lanes, fused=fused)
        db = sum_in_lanes(dy, dtype=dtype, lanes=lanes, fused=fused)
    else:
        weight = np.asarray(weight, dtype=np.float32)
        ds = sum_in_lanes(dy * x, weight, dtype=dtype, lanes=lanes, fused=fused)
        db = sum_in_lanes(dy, weight, dtype=dtype, lanes=lanes, fused=fused)
    found = backward_coefficients(ds, db, mean, rstd, x.shape[1], fused=fused)
    a, b, c = (v[:, None] for v in (found.a, found.b, found.c))
    from_dy = a * dy if weight is None else a * dy * weight
    return round_to(fused_multiply_add(b, x, from_dy, fused=fused) + c, dtype)
