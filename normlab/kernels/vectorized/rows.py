"""RMS norm of rows, forward and backward, as the last step of the ladder has layer norm."""

from __future__ import annotations

import math

import numpy as np

from normlab.kernels.vectorized.compiling import compiled, inlined, vectors
from normlab.kernels.vectorized.ladder import BLOCK, F32, FLUSH, flush, put
from normlab.kernels.vectorized.vectors import (
    fetch,
    finish_streams,
    fma,
    keep,
    load,
    read,
    spread,
    store,
    total,
    write,
)


@inlined
def row_sum(kind, x, start, n):
    s = spread(F32)
    for i, k in vectors(n):
        s += load(kind, x, start + i, k)
    return total(s)


@inlined
def centered_sums(kind, x, start, n, mean):
    """Sum and sum of squares of x - mean, in float64 over blocks."""
    m = spread(mean)
    sum1 = sum2 = 0.0
    for begin in range(0, n, BLOCK):
        s1, s2 = spread(F32), spread(F32)
        for i, k in vectors(begin, min(begin + BLOCK, n)):
            t = keep(load(kind, x, start + i, k) - m, k)
            s1, s2 = s1 + t, fma(t, t, s2)
        sum1 += total(s1)
        sum2 += total(s2)
    return sum1, sum2


@compiled
def rms_norm(kind, x, y, stats, w, first, last, n, eps, streaming):
    for row in range(first, last):
        at = row * n
        squares = 0.0
        for begin in range(0, n, BLOCK):
            s = spread(F32)
            for i, k in vectors(begin, min(begin + BLOCK, n)):
                t = load(kind, x, at + i, k)
                s = fma(t, t, s)
            squares += total(s)
        exact = 1.0 / math.sqrt(squares / n + eps)
        rstd = np.float32(exact)
        r = spread(rstd)
        d = spread(np.float32((exact - rstd) / rstd))  # what its rounding missed, relative
        for i, k in vectors(n):
            fetch(kind, x, at + n + i)
            weight = load(F32, w, i, k)
            x_hat = load(kind, x, at + i, k) * r
            put(kind, y, at + i, k, fma(x_hat, weight, (x_hat * d) * weight), streaming)
        write(stats, row, rstd)
    if streaming:
        finish_streams()


@compiled
def rms_norm_backward(
    kind, dy, x, dx, stats, rows, w, beside, partial, sums, first, last, n, streaming
):
    """With `beside`, `partial` and `sums` as in layer norm, for n numbers."""
    for row in range(first, last):
        at = row * n
        rstd = read(stats, row)
        s = spread(F32)
        for i, k in vectors(n):
            g = load(kind, dy, at + i, k) * load(F32, w, i, k)
            s = fma(g, load(kind, x, at + i, k), s)
        r, p = spread(rstd), spread(np.float32(-total(s) * rstd / n))
        for i, k in vectors(n):
            fetch(kind, x, at + n + i)
            fetch(kind, dy, at + n + i)
            g = load(kind, dy, at + i, k)
            x_hat = load(kind, x, at + i, k) * r
            value = fma(g, load(F32, w, i, k), x_hat * p) * r
            if beside:
                value = value + load(kind, beside, at + i, k)
            put(kind, dx, at + i, k, value, streaming)
            store(F32, partial, i, k, fma(g, x_hat, load(F32, partial, i, k)))
        if sums and (row % FLUSH == FLUSH - 1 or row + 1 == last):
            flush(partial, sums, n)
    if streaming:
        finish_streams()
