"""GroupNorm on CPU: Welford for contiguous input, two plain sums for channels_last."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.book.kernel_models.rounding import fused_multiply_add
from normlab.book.kernel_models.row_statistics import reciprocal_std, row_moments
from normlab.book.kernel_models.vector_sums import add_lanes

LARGE_PLANE = 1024  # values in a plane from which on the kernel adds up channels first


class GroupStatistics(NamedTuple):
    """Mean and 1 / sqrt(var + eps) of each group, float32 of shape (N, num_groups)."""

    mean: np.ndarray
    rstd: np.ndarray


def _planes(x: ArrayLike, num_groups: int) -> np.ndarray:
    x = np.asarray(x, dtype=np.float32)
    if x.ndim < 2 or x.size == 0:
        raise ValueError(f"x: got shape {x.shape}; expected (N, C, ...) with no size 0")
    if num_groups < 1 or x.shape[1] % num_groups:
        raise ValueError(
            f"num_groups: got {num_groups} for {x.shape[1]} channels; expected a divisor"
        )
    return x.reshape(*x.shape[:2], -1)  # (N, C, L)


def _by_position(planes: np.ndarray, channels_last: bool) -> bool:
    """Planes of one value are the same memory in both formats, and count as contiguous."""
    return channels_last and planes.shape[2] > 1


def _small_plane_sums(groups: np.ndarray, lanes: int, fused: bool) -> tuple[np.ndarray, np.ndarray]:
    """Sums of x and x² of (N, G, D, L): channels in lanes, position after position."""
    total, squares = np.zeros((2, *groups.shape[:2], lanes), np.float32)
    for k in range(groups.shape[3]):
        for start in range(0, groups.shape[2], lanes):
            part = groups[..., start : start + lanes, k]
            filled = np.s_[..., : part.shape[-1]]
            total[filled] += part
            squares[filled] += part * part
    return add_lanes(total, halves=fused), add_lanes(squares, halves=fused)


def _large_plane_sums(groups: np.ndarray, fused: bool) -> tuple[np.ndarray, np.ndarray]:
    """Sums of x and x² of (N, G, D, L): each channel on its own, then channel after channel."""
    total, squares = np.zeros((2, *groups.shape[:3]), np.float32)
    for k in range(groups.shape[3]):
        total = total + groups[..., k]
        squares = fused_multiply_add(groups[..., k], groups[..., k], squares, fused=fused)
    return add_lanes(total, halves=False), add_lanes(squares, halves=False)


def group_statistics(
    x: ArrayLike,
    num_groups: int,
    eps: float = 1e-5,
    *,
    channels_last: bool = False,
    lanes: int = 8,
    fused: bool = True,
) -> GroupStatistics:
    r"""Statistics of each group, by two algorithms that the memory format chooses between.

    Contiguous: the groups are rows, and :func:`row_moments` takes their moments. Channels last: one
    pass adds up x and x², and

    .. math:: \sigma^2 = \max\Bigl(0, \; \tfrac1n \sum x^2 - \mu^2\Bigr)

    which cancels when the mean is large beside the standard deviation. Planes of one value count as
    contiguous. With more than one thread, the sums of large channels_last planes are taken in
    parts.

    Raises:
        ValueError: x has fewer than two axes or a size of 0; `num_groups` does not divide C.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/group_norm_kernel.cpp,
        `GroupNormKernelImplInternal` and `GroupNormKernelImplChannelsLastInternal`.

    Example:
        >>> x = np.float32([[[9999.0, 10001.0]]])
        >>> for channels_last in (False, True):
        ...     print(group_statistics(x, 1, eps=0.25, channels_last=channels_last).rstd ** -2)
        [[1.25]]
        [[0.25]]
    """
    planes = _planes(x, num_groups)
    groups = planes.reshape(len(planes), num_groups, -1, planes.shape[2])  # (N, G, D, L)
    if not _by_position(planes, channels_last):
        rows = groups.reshape(len(planes) * num_groups, -1)
        mean, var = row_moments(rows, lanes=lanes, fused=fused)
    else:
        if planes.shape[2] >= LARGE_PLANE:
            total, squares = _large_plane_sums(groups, fused)
        else:
            total, squares = _small_plane_sums(groups, lanes, fused)
        share = np.float32(1) / np.float32(groups.shape[2] * groups.shape[3])
        mean = total * share
        var = fused_multiply_add(squares, share, -(mean * mean), fused=fused)
    rstd = reciprocal_std(np.maximum(var, np.float32(0)), eps, in_float64=True)
    shape = groups.shape[:2]
    return GroupStatistics(mean.reshape(shape), rstd.reshape(shape))


def group_transform(
    x: ArrayLike,
    statistics: GroupStatistics,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    channels_last: bool = False,
    fused: bool = True,
) -> np.ndarray:
    r"""One multiply and one add for each value, with two numbers for each sample and channel.

    .. math:: y = x s + t, \qquad s = r w, \qquad t = b - s \mu

    A contiguous input without weight and bias is centered first, :math:`y = (x - \mu)\, r`.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/group_norm_kernel.cpp.
    """
    planes = _planes(x, statistics.mean.shape[1])
    channels = planes.shape[1] // statistics.mean.shape[1]
    mean, rstd = (np.repeat(v, channels, axis=1)[..., None] for v in statistics)  # (N, C, 1)
    by_position = _by_position(planes, channels_last)
    if weight is None and bias is None and not by_position:
        return ((planes - mean) * rstd).reshape(np.shape(x))
    scale = rstd * np.asarray(1 if weight is None else weight, dtype=np.float32)[..., None]
    shift = np.asarray(0 if bias is None else bias, dtype=np.float32)[..., None]
    # Without a weight the channels_last loop multiplies once, before it adds any bias.
    shift_fused = fused and not (by_position and weight is None)
    shift = fused_multiply_add(-scale, mean, shift, fused=shift_fused)
    return fused_multiply_add(planes, scale, shift, fused=fused).reshape(np.shape(x))
