"""LayerNorm's gradients on CPU: three numbers a row for dx, a buffer a thread for the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.book.kernel_models.rounding import StoredDtype, fused_multiply_add, round_to
from normlab.book.kernel_models.vector_sums import sum_in_lanes


class BackwardCoefficients(NamedTuple):
    """What the kernel computes for each row, (rows,), before it writes dx = a·dy·w + b·x + c."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray


def backward_coefficients(
    ds: ArrayLike, db: ArrayLike, mean: ArrayLike, rstd: ArrayLike, n: int, *, fused: bool = True
) -> BackwardCoefficients:
    r"""The three coefficients of dx, from ds, the sum of dy·w·x, and db, that of dy·w, of each row.

    .. math:: a = r, \qquad b = (db \, \mu - ds)\, \frac{r^3}{n}, \qquad
              c = -b \mu - \frac{db \, r}{n}

    Why this is the textbook gradient: :math:`ds - \mu\, db = \sum g \hat x / r` with :math:`g = dy
    \odot w`, so :math:`b x + c = b (x - \mu) - db\, r / n = -r \hat x\, \overline{g \hat x} - r
    \bar g`. The difference `db * mean - ds` is of two sums that grow with the mean.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp, `layer_norm_backward_frame`.
    """
    ds, db, mean, a = (np.asarray(v, dtype=np.float32) for v in (ds, db, mean, rstd))
    scale = np.float32(1) / np.float32(n)
    b = fused_multiply_add(db, mean, -ds, fused=fused) * a * a * a * scale
    c = fused_multiply_add(-b, mean, -(db * a * scale), fused=fused)
    return BackwardCoefficients(a, b, c)


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
    """The gradient by the input, (rows, n), as the CPU kernel computes it: its sums are in float32.

    Raises:
        ValueError: dy and x differ in shape.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp, `layer_norm_backward_frame`.
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
    coefficients = backward_coefficients(ds, db, mean, rstd, x.shape[1], fused=fused)
    a, b, c = (value[:, None] for value in coefficients)
    from_dy = a * dy if weight is None else a * dy * weight
    return round_to(fused_multiply_add(b, x, from_dy, fused=fused) + c, dtype)


def weight_gradient_buffers(
    dy: ArrayLike,
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    *,
    threads: int = 1,
    dtype: StoredDtype = "float32",
    fused: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    r"""What each thread has added up when the loop over the rows is done.

    .. math:: dw_j \mathrel{+}= dy_j \,(r x_j - r \mu), \qquad db_j \mathrel{+}= dy_j

    Every sum is rounded to `dtype` row after row. In bfloat16, which has 8 significant bits, adding
    1 to 256 gives 256, so a buffer that collects ones stops there. The rows are cut into `threads`
    runs of equal length, the last one shorter.

    Returns:
        the buffers of weight and bias, each (threads, n).

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp,
        `LayerNormBackwardKernelImplInternal`.

    Example:
        >>> ones, zeros = np.ones((1000, 1)), np.zeros(1000)
        >>> given = ones, ones, zeros, zeros
        >>> weight_gradient_buffers(*given, threads=2, dtype="bfloat16")[1].ravel()
        array([256., 256.], dtype=float32)
    """
    dy, x = np.asarray(dy, dtype=np.float32), np.asarray(x, dtype=np.float32)
    a = np.asarray(rstd, dtype=np.float32)
    b = -a * np.asarray(mean, dtype=np.float32)
    rows, n = x.shape
    dweight, dbias = np.zeros((2, threads, n), np.float32)
    length = -(-rows // threads)
    for i in range(rows):
        t = i // length
        x_hat = fused_multiply_add(a[i], x[i], b[i], fused=fused)
        dweight[t] = round_to(fused_multiply_add(dy[i], x_hat, dweight[t], fused=fused), dtype)
        dbias[t] = round_to(dbias[t] + dy[i], dtype)
    return dweight, dbias


def add_buffers(buffers: ArrayLike, dtype: StoredDtype = "float32") -> np.ndarray:
    """Add the buffers of all threads in float32, thread after thread; round once at the end."""
    buffers = np.asarray(buffers, dtype=np.float32)
    return round_to(np.add.accumulate(buffers, axis=0)[-1], dtype)
