"""Layer norm and RMS norm of a sum: its row stays in the cache while it is written to memory."""

from __future__ import annotations

import math

import numpy as np

from normlab.kernels.vectorized.compiling import compiled, inlined
from normlab.kernels.vectorized.rows import BLOCK, normalizers, put
from normlab.kernels.vectorized.vectors import (
    LANES,
    finish_streams,
    fma,
    load,
    spread,
    store,
    total,
    write,
)


@inlined
def add_step(kind, x, residual, result, row, at, i, k, streaming):
    """Add, write the sum to memory and, rounded alike, to a row in the cache; give that."""
    value = load(kind, x, at + i, k) + load(kind, residual, at + i, k)
    put(kind, result, at + i, k, value, streaming)
    store(kind, row, i, k, value)
    return load(kind, row, i, k)


@inlined
def write_step(kind, row, y, w, b, at, i, k, m, c, r, streaming):
    f32 = np.float32(0)
    x_hat = ((load(kind, row, i, k) - m) - c) * r
    put(kind, y, at + i, k, fma(x_hat, load(f32, w, i, k), load(f32, b, i, k)), streaming)


@compiled
def add_layer_norm(
    kind, x, residual, result, y, stats, rows, w, b, scratch, first, last, n, eps, streaming
):
    """`scratch` has place for two rows of float32."""
    full = n - n % LANES
    here, there = scratch, scratch + 4 * n
    s = spread(np.float32(0))
    at = first * n
    for i in range(0, full, LANES):
        s += add_step(kind, x, residual, result, here, at, i, LANES, streaming)
    if full < n:
        s += add_step(kind, x, residual, result, here, at, full, n - full, False)
    for row in range(first, last):
        at = row * n
        m, c, r = normalizers(kind, here, 0, n, total(s), stats, rows, row, eps)
        s = spread(np.float32(0))
        if row + 1 < last:
            after = at + n
            for i in range(0, full, LANES):
                write_step(kind, here, y, w, b, at, i, LANES, m, c, r, streaming)
                s += add_step(kind, x, residual, result, there, after, i, LANES, streaming)
            if full < n:
                write_step(kind, here, y, w, b, at, full, n - full, m, c, r, False)
                s += add_step(kind, x, residual, result, there, after, full, n - full, False)
        else:
            for i in range(0, full, LANES):
                write_step(kind, here, y, w, b, at, i, LANES, m, c, r, streaming)
            if full < n:
                write_step(kind, here, y, w, b, at, full, n - full, m, c, r, False)
        here, there = there, here
    if streaming:
        finish_streams()


@inlined
def add_squares(kind, x, residual, result, row, at, n, streaming):
    """Write the sum of one row, and give its squares, in float64 over blocks."""
    squares = 0.0
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        full = end - (end - begin) % LANES
        s = spread(np.float32(0))
        for i in range(begin, full, LANES):
            value = add_step(kind, x, residual, result, row, at, i, LANES, streaming)
            s = fma(value, value, s)
        if full < end:
            value = add_step(kind, x, residual, result, row, at, full, end - full, False)
            s = fma(value, value, s)
        squares += total(s)
    return squares


@inlined
def scale_step(kind, row, y, w, at, i, k, r, d, streaming):
    weight = load(np.float32(0), w, i, k)
    x_hat = load(kind, row, i, k) * r
    put(kind, y, at + i, k, fma(x_hat, weight, (x_hat * d) * weight), streaming)


@compiled
def add_rms_norm(
    kind, x, residual, result, y, stats, rows, w, b, scratch, first, last, n, eps, streaming
):
    """As above; `rows` and `b` are not read."""
    full = n - n % LANES
    for row in range(first, last):
        at = row * n
        squares = add_squares(kind, x, residual, result, scratch, at, n, streaming)
        exact = 1.0 / math.sqrt(squares / n + eps)
        rstd = np.float32(exact)
        write(stats, row, rstd)
        r, d = spread(rstd), spread(np.float32((exact - rstd) / rstd))
        for i in range(0, full, LANES):
            scale_step(kind, scratch, y, w, at, i, LANES, r, d, streaming)
        if full < n:
            scale_step(kind, scratch, y, w, at, full, n - full, r, d, False)
    if streaming:
        finish_streams()
