"""Float32 arithmetic as a processor does it: one rounding or two, and storage in 16 bits."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

StoredDtype = Literal["float32", "bfloat16", "float16"]


def fused_multiply_add(
    a: ArrayLike, b: ArrayLike, c: ArrayLike, *, fused: bool = True
) -> np.ndarray:
    """The float32 value of a * b + c, rounded once as one instruction does, or twice without FMA.

    The product of two float32 values is exact in float64; the sum there rounds to 53 bits before it
    rounds to 24, which changes about one result in 2**29.
    """
    a, b, c = (np.asarray(v, dtype=np.float32) for v in (a, b, c))
    if fused:
        return (a.astype(np.float64) * b + c).astype(np.float32)
    return np.asarray(a * b + c)


def round_to(x: ArrayLike, dtype: StoredDtype) -> np.ndarray:
    """Round float32 values in the range of `dtype` to what it can store, ties to even, as float32.

    Raises:
        ValueError: another `dtype`.

    Example:
        >>> [float(round_to(257.0, d)) for d in ("float32", "bfloat16", "float16")]
        [257.0, 256.0, 257.0]
    """
    x = np.asarray(x, dtype=np.float32)
    if dtype == "float32":
        return x
    if dtype == "float16":
        return x.astype(np.float16).astype(np.float32)
    if dtype != "bfloat16":
        raise ValueError(f"dtype: got {dtype!r}; expected 'float32', 'bfloat16' or 'float16'")
    bits = np.ascontiguousarray(x).view(np.uint32)  # bfloat16 is the upper half of float32
    half_way = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = (bits + half_way) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32).reshape(x.shape)
