"""Layer norm and RMS norm of rows, forward and backward.

Tensors are addresses of rows that lie one behind the other, of the dtype that `kind` says; rows
`first` to `last` are normalized. `stats` has the mean, what its rounding missed and rstd of all
`rows`, or rstd alone.
"""

from __future__ import annotations

import math

import numpy as np

from normlab.kernels.vectorized.compiling import compiled, inlined, vectors
from normlab.kernels.vectorized.vectors import (
    LANES,
    add_double,
    fetch,
    finish_streams,
    fma,
    keep,
    load,
    read,
    spread,
    store,
    stream,
    total,
    write,
)

F32 = np.float32(0)
BLOCK = 512  # values whose sums stay in float32
FLUSH = 32  # rows whose weight gradients stay in float32


@inlined
def put(kind, base, i, k, value, streaming):
    if streaming and k == LANES:
        stream(kind, base, i, value)
    else:
        store(kind, base, i, k, value)


@inlined
def flush(partial, sums, n):
    """Move float32 sums of a few rows to the float64 sums of all."""
    for i, k in vectors(n):
        add_double(sums, i, k, load(F32, partial, i, k))
        store(F32, partial, i, k, spread(F32))


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
def layer_norm(kind, x, y, stats, rows, w, b, first, last, n, eps, streaming):
    for row in range(first, last):
        at = row * n
        s = spread(F32)
        for i, k in vectors(n):
            s += load(kind, x, at + i, k)
        mean = np.float32(total(s) / n)
        m = spread(mean)
        sum1 = sum2 = 0.0
        for begin in range(0, n, BLOCK):
            s1, s2 = spread(F32), spread(F32)
            for i, k in vectors(begin, min(begin + BLOCK, n)):
                t = keep(load(kind, x, at + i, k) - m, k)
                s1, s2 = s1 + t, fma(t, t, s2)
            sum1 += total(s1)
            sum2 += total(s2)
        missed = sum1 / n
        rstd = np.float32(1.0 / math.sqrt(max(sum2 / n - missed * missed, 0.0) + eps))
        c, r = spread(np.float32(missed)), spread(rstd)
        for i, k in vectors(n):
            fetch(kind, x, at + n + i)
            x_hat = ((load(kind, x, at + i, k) - m) - c) * r
            value = fma(x_hat, load(F32, w, i, k), load(F32, b, i, k))
            put(kind, y, at + i, k, value, streaming)
        write(stats, row, mean)
        write(stats, rows + row, np.float32(missed))
        write(stats, 2 * rows + row, rstd)
    if streaming:
        finish_streams()


@compiled
def layer_norm_backward(
    kind, dy, x, dx, stats, rows, w, beside, partial, sums, first, last, n, streaming
):
    """`beside` is added to dx, and `partial` not emptied into `sums`, where that is not 0."""
    dw, db = partial, partial + 4 * n
    for row in range(first, last):
        at = row * n
        m, r = spread(read(stats, row)), spread(read(stats, 2 * rows + row))
        c = spread(read(stats, rows + row))
        s1, s2 = spread(F32), spread(F32)
        for i, k in vectors(n):
            g = load(kind, dy, at + i, k) * load(F32, w, i, k)
            x_hat = ((load(kind, x, at + i, k) - m) - c) * r
            s1, s2 = s1 + g, fma(g, x_hat, s2)
        a, p = spread(np.float32(-total(s1) / n)), spread(np.float32(-total(s2) / n))
        for i, k in vectors(n):
            fetch(kind, x, at + n + i)
            fetch(kind, dy, at + n + i)
            g = load(kind, dy, at + i, k)
            x_hat = ((load(kind, x, at + i, k) - m) - c) * r
            value = fma(x_hat, p, fma(g, load(F32, w, i, k), a)) * r
            if beside:
                value = value + load(kind, beside, at + i, k)
            put(kind, dx, at + i, k, value, streaming)
            store(F32, dw, i, k, fma(g, x_hat, load(F32, dw, i, k)))
            store(F32, db, i, k, g + load(F32, db, i, k))
        if sums and (row % FLUSH == FLUSH - 1 or row + 1 == last):
            flush(partial, sums, 2 * n)
    if streaming:
        finish_streams()


@compiled
def rms_norm(kind, x, y, stats, rows, w, b, first, last, n, eps, streaming):
    """`rows` and `b` are not read."""
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
        # what its rounding missed, relative; with an infinite entry rstd is 0
        d = spread(np.float32((exact - rstd) / rstd if rstd else 0.0))
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
