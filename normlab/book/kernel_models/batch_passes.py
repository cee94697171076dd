"""BatchNorm on CPU: two passes over a channel; which type adds up depends on the memory format."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.book.kernel_models.rounding import fused_multiply_add


class BatchStatistics(NamedTuple):
    """Mean and 1 / sqrt(var + eps) of each channel, float32 of shape (C,)."""

    mean: np.ndarray
    invstd: np.ndarray


def _planes(name: str, x: ArrayLike) -> np.ndarray:
    x = np.asarray(x, dtype=np.float32)
    if x.ndim < 2 or x.size == 0:
        raise ValueError(f"{name}: got shape {x.shape}; expected (N, C, ...) with no size 0")
    return x.reshape(*x.shape[:2], -1)  # (N, C, L)


def batch_statistics(
    x: ArrayLike, eps: float = 1e-5, *, channels_last: bool = False, fused: bool = True
) -> BatchStatistics:
    """Mean in one pass, squared differences from the rounded mean in a second.

    A contiguous input is added up channel by channel in float64. A channels_last input is added up
    position by position, a vector of channels at a time, in float32; and so is an input with one
    value in each plane, such as (N, C), for which the two formats are the same memory.

    The mean is rounded to float32 before the second pass, and so is each squared difference of the
    float64 pass. It is the sum of one thread: with more, the float32 pass adds up parts.

    Raises:
        ValueError: x has fewer than two axes, or a size of 0.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/batch_norm_kernel.cpp,
        `batch_norm_cpu_collect_stats_contiguous_impl` and `..._channels_last_impl`; `InvStd` in
        aten/src/ATen/native/Normalization.cpp.
    """
    planes = _planes("x", x)
    values = planes.transpose(1, 0, 2).reshape(planes.shape[1], -1)  # (C, N * L)
    n = values.shape[1]
    in_float32 = channels_last or planes.shape[2] == 1
    real = np.float32 if in_float32 else np.float64
    total = np.add.accumulate(values, axis=1, dtype=real)[:, -1]
    mean = (total.astype(np.float64) / n).astype(np.float32)
    squares = np.zeros(len(values), real)
    for column in (values - mean[:, None]).T:
        if in_float32:
            squares = fused_multiply_add(column, column, squares, fused=fused)
        else:
            squares = squares + column * column
    var = squares.astype(np.float32) / np.float32(n)
    return BatchStatistics(mean, (1 / np.sqrt(var.astype(np.float64) + eps)).astype(np.float32))


def batch_transform(
    x: ArrayLike,
    statistics: BatchStatistics,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    fused: bool = True,
) -> np.ndarray:
    r"""One multiply and one add for each value: the statistics are folded into two numbers.

    .. math:: y = x \alpha + \beta, \qquad \alpha = r w, \qquad \beta = b - \mu \alpha

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/batch_norm_kernel.cpp,
        `batch_norm_cpu_collect_linear_and_constant_terms`.
    """
    planes = _planes("x", x)
    alpha = statistics.invstd * np.asarray(1 if weight is None else weight, dtype=np.float32)
    beta = fused_multiply_add(-statistics.mean, alpha, 0.0 if bias is None else bias, fused=fused)
    y = fused_multiply_add(planes, alpha[:, None], beta[:, None], fused=fused)
    return y.reshape(np.shape(x))
