"""Layer norm and RMS norm of a sum: its row stays in the cache while it is written to memory.

The sum, rounded as its result, stands in `scratch` while its row is normalized.
"""

from __future__ import annotations

import math

import numpy as np

from normlab.kernels.vectorized.compiling import compiled, vectors
from normlab.kernels.vectorized.rows import BLOCK, F32, centered_sums, put
from normlab.kernels.vectorized.vectors import (
    fetch,
    finish_streams,
    fma,
    load,
    spread,
    store,
    total,
    write,
)


@compiled
def add_layer_norm(
    kind, x, residual, result, y, stats, rows, w, b, scratch, first, last, n, eps, streaming
):
    for row in range(first, last):
        at = row * n
        s = spread(F32)
        for i, k in vectors(n):
            value = load(kind, x, at + i, k) + load(kind, residual, at + i, k)
            put(kind, result, at + i, k, value, streaming)
            store(kind, scratch, i, k, value)
            s += load(kind, scratch, i, k)
        mean = np.float32(total(s) / n)
        sum1, sum2 = centered_sums(kind, scratch, 0, n, mean)
        missed = sum1 / n
        rstd = np.float32(1.0 / math.sqrt(max(sum2 / n - missed * missed, 0.0) + eps))
        m, c, r = spread(mean), spread(np.float32(missed)), spread(rstd)
        for i, k in vectors(n):
            fetch(kind, x, at + n + i)
            fetch(kind, residual, at + n + i)
            x_hat = ((load(kind, scratch, i, k) - m) - c) * r
            value = fma(x_hat, load(F32, w, i, k), load(F32, b, i, k))
            put(kind, y, at + i, k, value, streaming)
        write(stats, row, mean)
        write(stats, rows + row, np.float32(missed))
        write(stats, 2 * rows + row, rstd)
    if streaming:
        finish_streams()


@compiled
def add_rms_norm(
    kind, x, residual, result, y, stats, rows, w, b, scratch, first, last, n, eps, streaming
):
    """As above; `rows` and `b` are not read."""
    for row in range(first, last):
        at = row * n
        squares = 0.0
        for begin in range(0, n, BLOCK):
            s = spread(F32)
            for i, k in vectors(begin, min(begin + BLOCK, n)):
                value = load(kind, x, at + i, k) + load(kind, residual, at + i, k)
                put(kind, result, at + i, k, value, streaming)
                store(kind, scratch, i, k, value)
                value = load(kind, scratch, i, k)
                s = fma(value, value, s)
            squares += total(s)
        exact = 1.0 / math.sqrt(squares / n + eps)
        rstd = np.float32(exact)
        r, d = spread(rstd), spread(np.float32((exact - rstd) / rstd if rstd else 0.0))
        for i, k in vectors(n):
            fetch(kind, x, at + n + i)
            fetch(kind, residual, at + n + i)
            weight = load(F32, w, i, k)
            x_hat = load(kind, scratch, i, k) * r
            put(kind, y, at + i, k, fma(x_hat, weight, (x_hat * d) * weight), streaming)
        write(stats, row, rstd)
    if streaming:
        finish_streams()
