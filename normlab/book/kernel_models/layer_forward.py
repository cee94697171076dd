"""The second pass of LayerNorm on CPU: float32 and 16-bit input use two forms of one formula."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.book.kernel_models.rounding import StoredDtype, fused_multiply_add, round_to
from normlab.book.kernel_models.row_statistics import reciprocal_std, row_moments


class LayerNormRows(NamedTuple):
    """The y of the kernel, rounded to the stored dtype, and mean and rstd before such rounding."""

    y: np.ndarray
    mean: np.ndarray
    rstd: np.ndarray


def _columns(mean: ArrayLike, rstd: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.asarray(mean, dtype=np.float32)[:, None],
        np.asarray(rstd, dtype=np.float32)[:, None],
    )


def centered_second_pass(
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike | None,
    bias: ArrayLike,
    *,
    fused: bool = True,
) -> np.ndarray:
    r"""The form for float32 input: subtract, scale, then weight and bias.

    .. math:: y = \bigl((x - \mu)\, r\bigr)\, w + b

    A weight that is None leaves no product to round, so that scale and bias fuse.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp, `LayerNormSecondPass`.
    """
    m, r = _columns(mean, rstd)
    centered = np.asarray(x, dtype=np.float32) - m
    if weight is None:
        return fused_multiply_add(centered, r, bias, fused=fused)
    return fused_multiply_add(centered * r, weight, bias, fused=fused)


def shifted_second_pass(
    x: ArrayLike,
    mean: ArrayLike,
    rstd: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike,
    *,
    fused: bool = True,
) -> np.ndarray:
    r"""The form for bfloat16 and float16 input: scale, then shift by a rounded product.

    .. math:: y = \bigl(x r + (-r \mu)\bigr)\, w + b

    The product r μ is rounded to float32 before it is subtracted from x r, which was not: for a
    large mean what is left is the rounding error.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp.
    """
    m, r = _columns(mean, rstd)
    x_hat = fused_multiply_add(x, r, -r * m, fused=fused)
    return fused_multiply_add(x_hat, weight, bias, fused=fused)


def layer_norm_rows(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    *,
    dtype: StoredDtype = "float32",
    lanes: int = 8,
    fused: bool = True,
) -> LayerNormRows:
    """The whole forward kernel of LayerNorm over the last axis; all arithmetic is in float32.

    Raises:
        ValueError: x is not two-dimensional, or has no columns.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp, `LayerNormKernelImpl`.

    Example:
        >>> layer_norm_rows([[1.0, 3.0]], eps=0.0).y
        array([[-1.,  1.]], dtype=float32)
    """
    x = np.asarray(x, dtype=np.float32)
    mean, var = row_moments(x, dtype=dtype, lanes=lanes, fused=fused)
    rstd = reciprocal_std(var, eps)
    b = 0.0 if bias is None else bias
    if dtype == "float32":
        y = centered_second_pass(x, mean, rstd, weight, b, fused=fused)
    else:
        w = 1.0 if weight is None else weight
        y = round_to(shifted_second_pass(x, mean, rstd, w, b, fused=fused), dtype)
    return LayerNormRows(y, mean, rstd)
