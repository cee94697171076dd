"""Conversions and checks that the references share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def as_float64(name: str, value: ArrayLike) -> np.ndarray:
    """Convert real numbers to float64, and refuse others."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: got dtype {array.dtype}; expected real numbers")
    return array.astype(np.float64)


def as_channel_vector(name: str, value: ArrayLike | None, x: np.ndarray) -> np.ndarray | None:
    """Convert a parameter of (C,) to float64, shaped to be broadcast against (N, C, *)."""
    if value is None:
        return None
    vector = as_float64(name, value)
    if vector.shape != x.shape[1:2]:
        raise ValueError(
            f"{name}: got shape {vector.shape}; expected ({x.shape[1]},), one entry for each "
            f"channel of the input {x.shape}"
        )
    return vector.reshape(1, vector.size, *(1,) * (x.ndim - 2))


def as_normalized(
    name: str, value: ArrayLike | None, x: np.ndarray, normalized_shape: tuple[int, ...]
) -> np.ndarray | None:
    """Convert a parameter of `normalized_shape` to float64 with the axes of `x`."""
    if value is None:
        return None
    array = as_float64(name, value)
    if array.shape != normalized_shape:
        raise ValueError(
            f"{name}: got shape {array.shape}; expected normalized_shape {normalized_shape}"
        )
    return array.reshape((1,) * (x.ndim - array.ndim) + array.shape)


def check_shape_norm(x: np.ndarray, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    """Return `normalized_shape` as a tuple once it ends the shape of `x`."""
    if isinstance(normalized_shape, int | np.integer):
        raise TypeError(
            f"normalized_shape: got {normalized_shape!r}; expected a tuple, such as "
            f"({normalized_shape},)"
        )
    shape = tuple(int(n) for n in normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ValueError(
            f"normalized_shape: got {shape} for an input of shape {x.shape}; expected the "
            "input's last sizes, at least one"
        )
    return shape


def as_row(x: ArrayLike) -> np.ndarray:
    """Convert the values that share statistics to float64 once they are one row."""
    row = as_float64("x", x)
    if row.ndim != 1:
        raise ValueError(
            f"x: got shape {row.shape}; expected one row of values that share statistics, (H,). "
            "Pass them with ravel()"
        )
    return row


def check_upstream(dy: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """Convert the gradient by the output to float64 once it has the output's shape."""
    array = as_float64("dy", dy)
    if array.shape != shape:
        raise ValueError(f"dy: got shape {array.shape}; expected that of the output, {shape}")
    return array
