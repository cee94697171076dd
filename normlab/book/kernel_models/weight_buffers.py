"""LayerNorm's weight and bias gradients on CPU: a buffer per thread, in the dtype of the input."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from normlab.book.kernel_models.rounding import StoredDtype, fused_multiply_add, round_to


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

    Every sum is rounded to `dtype` row after row. In bfloat16, which has 8 significant bits,
    adding 1 to 256 gives 256, so a buffer that collects ones stops there.

    Args:
        dy: float32 of shape (rows, n).
        x: float32 of shape (rows, n).
        mean: (rows,), as saved by the forward pass.
        rstd: (rows,), as saved by the forward pass.
        threads: the rows are cut into this many runs of equal length, the last one shorter.
        dtype: how torch stores x, and so the buffers.
        fused: multiply and add round once.

    Returns:
        the buffers of weight and bias, each (threads, n).

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp,
        `LayerNormBackwardKernelImplInternal`.

    Example:
        >>> ones, zeros = np.ones((1000, 1)), np.zeros(1000)
        >>> for dtype in ("float32", "bfloat16"):
        ...     _, dbias = weight_gradient_buffers(ones, ones, zeros, zeros, threads=2, dtype=dtype)
        ...     print(dbias.ravel())
        [500. 500.]
        [256. 256.]
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
    """Add the buffers of all threads in float32, thread after thread; round once at the end.

    Args:
        buffers: (threads, n).
        dtype: how torch stores the parameter.

    Shape:
        returns (n,).

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp,
        `LayerNormBackwardKernelImplInternal`.

    Example:
        >>> add_buffers([[256.0], [256.0]], "bfloat16")
        array([512.], dtype=float32)
    """
    buffers = np.asarray(buffers, dtype=np.float32)
    return round_to(np.add.accumulate(buffers, axis=0)[-1], dtype)
