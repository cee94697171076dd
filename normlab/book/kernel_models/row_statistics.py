"""Mean and variance of rows as torch's CPU kernels take them: Welford in lanes, merged in pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from normlab.book.kernel_models.rounding import StoredDtype, fused_multiply_add

CHUNK = 16  # vectors that one Welford recurrence runs over before it is merged


class RowMoments(NamedTuple):
    """Mean and variance, with divisor n, of each row: float32 of shape (rows,)."""

    mean: np.ndarray
    var: np.ndarray


class _Moments(NamedTuple):
    n: int
    mean: np.ndarray
    squares: np.ndarray  # sum of squared differences from the mean


def _merge(into: _Moments, other: _Moments, fused: bool) -> _Moments:
    """Lane by lane; the products are grouped as the vector code groups them."""
    n = into.n + other.n
    share = np.float32(other.n) / np.float32(max(n, 1))
    difference = other.mean - into.mean
    step = share * difference
    squares = fused_multiply_add(
        difference * np.float32(into.n), step, into.squares + other.squares, fused=fused
    )
    return _Moments(n, into.mean + step, squares)


def _merge_lane(into: _Moments, other: _Moments, fused: bool) -> _Moments:
    """One lane into the state of the tail; the scalar code groups the products differently."""
    n = into.n + other.n
    share = np.float32(other.n) / np.float32(max(n, 1))
    difference = other.mean - into.mean
    mean = fused_multiply_add(share, difference, into.mean, fused=fused)
    between = fused_multiply_add(
        difference * difference * share, into.n, other.squares, fused=fused
    )
    return _Moments(n, mean, into.squares + between)


def _chunk(vectors: np.ndarray, fused: bool) -> _Moments:
    """Welford's recurrence along axis 1, with 1/k from a table instead of a division."""
    mean = squares = np.zeros_like(vectors[:, 0])
    for k in range(vectors.shape[1]):
        difference = vectors[:, k] - mean
        mean = fused_multiply_add(np.float32(1) / np.float32(k + 1), difference, mean, fused=fused)
        squares = fused_multiply_add(difference, vectors[:, k] - mean, squares, fused=fused)
    return _Moments(vectors.shape[1], mean, squares)


def _tail(values: np.ndarray, fused: bool) -> _Moments:
    """Welford's recurrence over the values that fill no vector, with a division."""
    mean = squares = np.zeros(len(values), np.float32)
    for k in range(values.shape[1]):
        difference = values[:, k] - mean
        mean = mean + difference / np.float32(k + 1)
        squares = fused_multiply_add(difference, values[:, k] - mean, squares, fused=fused)
    return _Moments(values.shape[1], mean, squares)


def row_moments(
    x: ArrayLike, *, dtype: StoredDtype = "float32", lanes: int = 8, fused: bool = True
) -> RowMoments:
    """Mean and variance of each row, in float32 and in the order of torch's CPU kernels.

    1. Each lane runs Welford's recurrence over 16 vectors. A 16-bit load fills two vectors, with
       a recurrence each.
    2. Finished chunks are merged in pairs, pairs of pairs and so on, as in a binary counter.
    3. The values that fill no vector go through a recurrence of their own.
    4. The lanes are merged into that, one after the other.

    Raises:
        ValueError: x is not two-dimensional, or has no columns.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/moments_utils.h, `RowwiseMoments`; the merging of
        moments is chan1983algorithms, Eq. 2.1.

    Example:
        >>> mean, var = row_moments(np.float32([[9999.0, 10001.0]]))
        >>> float(mean[0]), float(var[0])
        (10000.0, 1.0)
    """
    x = np.asarray(x, dtype=np.float32)
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"x: got shape {x.shape}; expected (rows, n) with n > 0; reshape it")
    rows, n = x.shape
    loads = 1 if dtype == "float32" else 2  # vectors of float32 that one load fills
    vectors = n // (loads * lanes)
    blocks = x[:, : vectors * loads * lanes].reshape(rows, vectors, loads, lanes)
    zeros = np.zeros((rows, lanes), np.float32)
    chunks = -(-vectors // CHUNK)
    levels = [_Moments(0, zeros, zeros)] * max(1, (chunks - 1).bit_length())
    for i in range(chunks):
        for load in range(loads):
            chunk = blocks[:, i * CHUNK : (i + 1) * CHUNK, load]
            levels[0] = _merge(levels[0], _chunk(chunk, fused), fused)
        finished = i + 1
        for level in range(1, len(levels)):
            if finished & 1:
                break
            levels[level] = _merge(levels[level], levels[level - 1], fused)
            levels[level - 1] = _Moments(0, zeros, zeros)
            finished >>= 1
    merged = levels[0]
    for upper in levels[1:]:
        merged = _merge(merged, upper, fused)
    # The compiler fuses the multiply and add of the tail for float16 only.
    total = _tail(x[:, vectors * loads * lanes :], fused and dtype == "float16")
    for k in range(lanes):
        lane = _Moments(merged.n, merged.mean[:, k], merged.squares[:, k])
        total = _merge_lane(total, lane, fused)
    return RowMoments(total.mean, total.squares / np.float32(n))


def reciprocal_std(var: ArrayLike, eps: float, *, in_float64: bool = False) -> np.ndarray:
    """1 / sqrt(var + eps) with the roundings of the LayerNorm kernel, or of the GroupNorm kernel.

    GroupNorm adds `eps` as a float64, and so divides `in_float64` before it rounds; LayerNorm
    rounds `eps` to float32 first.

    Source:
        torch 2.13.0, aten/src/ATen/native/cpu/layer_norm_kernel.cpp and group_norm_kernel.cpp.
    """
    real = np.float64 if in_float64 else np.float32
    var = np.asarray(var, dtype=np.float32).astype(real)
    return np.asarray(real(1) / np.sqrt(var + real(eps))).astype(np.float32)
