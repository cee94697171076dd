"""Sums as vector code takes them: each lane of a register on its own, then the lanes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from normlab.book.kernel_models.rounding import StoredDtype, fused_multiply_add


def add_lanes(register: ArrayLike, *, halves: bool = True) -> np.ndarray:
    """Add the values of a vector register, which are the last axis.

    With `halves`, the upper half is added to the lower half until one value is left, as the AVX2
    build does. Otherwise one after the other, as code without AVX does, and any build for a row
    that does not fill a load.

    Source:
        torch 2.13.0, aten/src/ATen/cpu/vec/functional_base.h, `vec_reduce_all`.

    Example:
        >>> lanes = np.float32([1e8, 1, -1e8, 1])
        >>> float(add_lanes(lanes)), float(add_lanes(lanes, halves=False))
        (2.0, 1.0)
    """
    lane = np.asarray(register, dtype=np.float32)
    if not halves:
        return np.asarray(np.add.accumulate(lane, axis=-1)[..., -1])
    while lane.shape[-1] > 1:
        middle = lane.shape[-1] // 2
        lane = lane[..., :middle] + lane[..., middle:]
    return lane[..., 0]


def sum_in_lanes(
    x: ArrayLike,
    y: ArrayLike | None = None,
    *,
    dtype: StoredDtype = "float32",
    lanes: int = 8,
    fused: bool = True,
) -> np.ndarray:
    """Sum x, or x * y, over the last axis in vector registers: lane by lane, then across.

    Lane k adds the values k, k + lanes, k + 2 lanes, … in order; a 16-bit load fills two registers,
    which are added at the end, before :func:`add_lanes`. The AVX2 build, which `fused` says, adds
    lanes in halves and fuses product and sum in a last vector where values are missing.

    Source:
        torch 2.13.0, aten/src/ATen/cpu/vec/functional_base.h and functional_bfloat16.h,
        `map2_reduce_all`.
    """
    x = np.asarray(x, dtype=np.float32)
    y = np.broadcast_to(np.float32(1) if y is None else np.asarray(y, dtype=np.float32), x.shape)
    n, width = x.shape[-1], lanes if dtype == "float32" else 2 * lanes
    lane = np.zeros((*x.shape[:-1], width), np.float32)
    for start in range(0, n, width):
        part = slice(start, min(start + width, n))
        filled = lane[..., : part.stop - start]
        missing = start > 0 and part.stop - start < width
        filled[...] = fused_multiply_add(
            x[..., part], y[..., part], filled, fused=fused and missing
        )
    if width > lanes:
        lane = lane[..., :lanes] + lane[..., lanes:]
    return add_lanes(lane, halves=fused and n >= width)
