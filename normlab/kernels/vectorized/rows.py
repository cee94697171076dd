"""Layer norm and RMS norm of rows, forward and backward, as loops over vectors.

Each row is read from memory once: the loop that writes row i also sums row i + 1, and the other
passes find their row in the cache.
"""

from __future__ import annotations

import math

import numpy as np

from normlab.kernels.vectorized.compiling import compiled, inlined
from normlab.kernels.vectorized.vectors import (
    LANES,
    add_double,
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

BLOCK = 512  # values whose sums stay in float32
FLUSH = 32  # rows whose weight gradients stay in float32


@inlined
def put(kind, base, i, k, value, streaming):
    if streaming:
        stream(kind, base, i, value)
    else:
        store(kind, base, i, k, value)


@inlined
def row_sum(kind, x, start, n):
    s = spread(np.float32(0.0))
    full = n - n % LANES
    for i in range(0, full, LANES):
        s += load(kind, x, start + i, LANES)
    if full < n:
        s += load(kind, x, start + full, n - full)
    return total(s)


@inlined
def centered_step(kind, x, at, k, m, s1, s2):
    t = keep(load(kind, x, at, k) - m, k)
    return s1 + t, fma(t, t, s2)


@inlined
def centered_sums(kind, x, start, n, mean):
    """Sum and sum of squares of x - mean, in float64 over blocks."""
    m = spread(mean)
    sum1 = 0.0
    sum2 = 0.0
    for first in range(0, n, BLOCK):
        size = min(BLOCK, n - first)
        full = size - size % LANES
        s1 = spread(np.float32(0.0))
        s2 = spread(np.float32(0.0))
        for i in range(first, first + full, LANES):
            s1, s2 = centered_step(kind, x, start + i, LANES, m, s1, s2)
        if full < size:
            s1, s2 = centered_step(kind, x, start + first + full, size - full, m, s1, s2)
        sum1 += total(s1)
        sum2 += total(s2)
    return sum1, sum2


@inlined
def normalizers(kind, x, start, n, s, stats, rows, row, eps):
    """Mean, what its rounding missed and rstd of a row with the sum `s`; they are written, too."""
    mean = np.float32(s / n)
    sum1, sum2 = centered_sums(kind, x, start, n, mean)
    missed = sum1 / n
    rstd = np.float32(1.0 / math.sqrt(max(sum2 / n - missed * missed, 0.0) + eps))
    missed = np.float32(missed)
    write(stats, row, mean)
    write(stats, rows + row, missed)
    write(stats, 2 * rows + row, rstd)
    return spread(mean), spread(missed), spread(rstd)


@inlined
def ln_step(kind, x, y, w, b, at, i, k, following, m, c, r, s, streaming):
    x_hat = ((load(kind, x, at + i, k) - m) - c) * r
    weight = load(np.float32(0), w, i, k)
    value = fma(x_hat, weight, load(np.float32(0), b, i, k))
    put(kind, y, at + i, k, value, streaming)
    return s + load(kind, x, following + i, k)


@compiled
def layer_norm(kind, x, y, stats, rows, w, b, first, last, n, eps, streaming):
    f32 = np.float32(0)
    full = n - n % LANES
    s = row_sum(kind, x, first * n, n)
    for row in range(first, last):
        at = row * n
        m, c, r = normalizers(kind, x, at, n, s, stats, rows, row, eps)
        following = at + n if row + 1 < last else at
        v = spread(f32)
        for i in range(0, full, LANES):
            v = ln_step(kind, x, y, w, b, at, i, LANES, following, m, c, r, v, streaming)
        if full < n:
            v = ln_step(kind, x, y, w, b, at, full, n - full, following, m, c, r, v, False)
        s = total(v)
    if streaming:
        finish_streams()


@inlined
def ln_sums_step(kind, dy, x, w, at, i, k, m, c, r, s1, s2):
    g = load(kind, dy, at + i, k) * load(np.float32(0), w, i, k)
    return s1 + g, fma(g, ((load(kind, x, at + i, k) - m) - c) * r, s2)


@inlined
def ln_gradient_step(kind, dy, x, w, dx, dw, db, at, i, k, m, c, r, a, p, beside, streaming):
    f32 = np.float32(0)
    g = load(kind, dy, at + i, k)
    x_hat = ((load(kind, x, at + i, k) - m) - c) * r
    value = (fma(g, load(f32, w, i, k), a) + x_hat * p) * r
    if beside:
        value = value + load(kind, beside, at + i, k)
    put(kind, dx, at + i, k, value, streaming)
    store(f32, dw, i, k, fma(g, x_hat, load(f32, dw, i, k)))
    store(f32, db, i, k, g + load(f32, db, i, k))


@inlined
def flush(partial, sums, n):
    """Move float32 sums of a few rows to the float64 sums of all."""
    f32 = np.float32(0)
    full = n - n % LANES
    for i in range(0, full, LANES):
        add_double(sums, i, LANES, load(f32, partial, i, LANES))
        store(f32, partial, i, LANES, spread(f32))
    if full < n:
        add_double(sums, full, n - full, load(f32, partial, full, n - full))
        store(f32, partial, full, n - full, spread(f32))


@compiled
def layer_norm_backward(
    kind, dy, x, dx, stats, rows, w, beside, partial, sums, first, last, n, streaming
):
    """The weights' gradients are added to `sums` in float64, or left in `partial` where it is 0.

    `beside` is added to dx, where it is not 0.
    """
    f32 = np.float32(0)
    full = n - n % LANES
    dw, db = partial, partial + 4 * n
    m2 = spread(read(stats, first))
    c2 = spread(read(stats, rows + first))
    r2 = spread(read(stats, 2 * rows + first))
    s1, s2 = spread(f32), spread(f32)
    at = first * n
    for i in range(0, full, LANES):
        s1, s2 = ln_sums_step(kind, dy, x, w, at, i, LANES, m2, c2, r2, s1, s2)
    if full < n:
        s1, s2 = ln_sums_step(kind, dy, x, w, at, full, n - full, m2, c2, r2, s1, s2)
    for row in range(first, last):
        at = row * n
        a, p = spread(np.float32(-total(s1) / n)), spread(np.float32(-total(s2) / n))
        m, c, r = m2, c2, r2
        s1, s2 = spread(f32), spread(f32)
        following = row + 1 if row + 1 < last else row
        m2 = spread(read(stats, following))
        c2 = spread(read(stats, rows + following))
        r2 = spread(read(stats, 2 * rows + following))
        after = following * n
        for i in range(0, full, LANES):
            ln_gradient_step(
                kind, dy, x, w, dx, dw, db, at, i, LANES, m, c, r, a, p, beside, streaming
            )
            s1, s2 = ln_sums_step(kind, dy, x, w, after, i, LANES, m2, c2, r2, s1, s2)
        if full < n:
            k = n - full
            ln_gradient_step(kind, dy, x, w, dx, dw, db, at, full, k, m, c, r, a, p, beside, False)
            s1, s2 = ln_sums_step(kind, dy, x, w, after, full, k, m2, c2, r2, s1, s2)
        if sums and (row % FLUSH == FLUSH - 1 or row + 1 == last):
            flush(dw, sums, n)
            flush(db, sums + 8 * n, n)
    if streaming:
        finish_streams()


@inlined
def rms_step(kind, x, y, w, at, i, k, following, r, d, s, streaming):
    weight = load(np.float32(0), w, i, k)
    x_hat = load(kind, x, at + i, k) * r
    put(kind, y, at + i, k, fma(x_hat, weight, (x_hat * d) * weight), streaming)
    v = load(kind, x, following + i, k)
    return fma(v, v, s)


@inlined
def square_sum(kind, x, start, n):
    result = 0.0
    for first in range(0, n, BLOCK):
        size = min(BLOCK, n - first)
        full = size - size % LANES
        s = spread(np.float32(0.0))
        for i in range(first, first + full, LANES):
            v = load(kind, x, start + i, LANES)
            s = fma(v, v, s)
        if full < size:
            v = load(kind, x, start + first + full, size - full)
            s = fma(v, v, s)
        result += total(s)
    return result


@compiled
def rms_norm(kind, x, y, stats, w, first, last, n, eps, streaming):
    s = square_sum(kind, x, first * n, n)
    for row in range(first, last):
        at = row * n
        exact = 1.0 / math.sqrt(s / n + eps)
        rstd = np.float32(exact)
        write(stats, row, rstd)
        r = spread(rstd)
        d = spread(np.float32((exact - rstd) / rstd))  # what its rounding missed, relative
        following = at + n if row + 1 < last else at
        s = 0.0
        for begin in range(0, n, BLOCK):
            end = min(begin + BLOCK, n)
            full = end - (end - begin) % LANES
            v = spread(np.float32(0))
            for i in range(begin, full, LANES):
                v = rms_step(kind, x, y, w, at, i, LANES, following, r, d, v, streaming)
            if full < end:
                v = rms_step(kind, x, y, w, at, full, end - full, following, r, d, v, False)
            s += total(v)
    if streaming:
        finish_streams()


@inlined
def rms_sums_step(kind, dy, x, w, at, i, k, s):
    g = load(kind, dy, at + i, k) * load(np.float32(0), w, i, k)
    return fma(g, load(kind, x, at + i, k), s)


@inlined
def rms_gradient_step(kind, dy, x, w, dx, dw, at, i, k, r, p, beside, streaming):
    f32 = np.float32(0)
    g = load(kind, dy, at + i, k)
    x_hat = load(kind, x, at + i, k) * r
    value = fma(g, load(f32, w, i, k), x_hat * p) * r
    if beside:
        value = value + load(kind, beside, at + i, k)
    put(kind, dx, at + i, k, value, streaming)
    store(f32, dw, i, k, fma(g, x_hat, load(f32, dw, i, k)))


@compiled
def rms_norm_backward(kind, dy, x, dx, stats, w, beside, partial, sums, first, last, n, streaming):
    full = n - n % LANES
    s = spread(np.float32(0))
    for i in range(0, full, LANES):
        s = rms_sums_step(kind, dy, x, w, first * n, i, LANES, s)
    if full < n:
        s = rms_sums_step(kind, dy, x, w, first * n, full, n - full, s)
    for row in range(first, last):
        at = row * n
        rstd = read(stats, row)
        r, p = spread(rstd), spread(np.float32(-total(s) * rstd / n))
        after = at + n if row + 1 < last else at
        s = spread(np.float32(0))
        for i in range(0, full, LANES):
            rms_gradient_step(kind, dy, x, w, dx, partial, at, i, LANES, r, p, beside, streaming)
            s = rms_sums_step(kind, dy, x, w, after, i, LANES, s)
        if full < n:
            rms_gradient_step(kind, dy, x, w, dx, partial, at, full, n - full, r, p, beside, False)
            s = rms_sums_step(kind, dy, x, w, after, full, n - full, s)
        if sums and (row % FLUSH == FLUSH - 1 or row + 1 == last):
            flush(partial, sums, n)
    if streaming:
        finish_streams()
