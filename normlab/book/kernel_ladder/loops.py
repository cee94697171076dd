"""Layer norm as a ladder: a loop of twenty lines, then one change a step, up to the back end's own.

`loop` takes arrays. The others take addresses of rows that lie one behind the other, of the dtype
that `kind` says, and normalize rows `first` to `last`; `stats` has the mean, what its rounding
missed (from `corrected` on) and rstd of all `rows`. The weights' gradients are added to the 2 n
float32 numbers at `partial`, and from :func:`layer_norm_backward` on to float64 numbers at `sums`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from normlab.kernels.vectorized.compiling import compiled, vectors
from normlab.kernels.vectorized.rows import (
    BLOCK,
    F32,
    FLUSH,
    flush,
    put,
)
from normlab.kernels.vectorized.rows import layer_norm as layer_norm  # the last step
from normlab.kernels.vectorized.rows import layer_norm_backward as layer_norm_backward
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


@compiled
def copy(kind, x, other, y, size):
    """Stream x, or x plus `other` where that is not 0, to y: what no step can be faster than."""
    for i, k in vectors(size):
        value = load(kind, x, i, k)
        if other:
            value = value + load(kind, other, i, k)
        put(kind, y, i, k, value, True)
    finish_streams()


@njit
def repeat(function, arguments, times):
    """Call a compiled function again and again, without Python between the calls."""
    for _ in range(times):
        function(*arguments)


@njit(error_model="numpy")
def loop(x, weight, bias, eps, y, mean, rstd):
    """Fill y of shape (rows, n), and mean and rstd of shape (rows,)."""
    rows, n = x.shape
    for row in range(rows):
        total = squares = np.float32(0)
        for i in range(n):
            total += x[row, i]
        m = total / np.float32(n)
        for i in range(n):
            squares += (x[row, i] - m) * (x[row, i] - m)
        r = np.float32(1 / math.sqrt(squares / n + eps))
        for i in range(n):
            y[row, i] = (x[row, i] - m) * r * weight[i] + bias[i]
        mean[row], rstd[row] = m, r


@njit(error_model="numpy")
def loop_backward(dy, x, mean, rstd, weight, dx, dweight, dbias):
    """Fill dx of shape (rows, n) and add to dweight and dbias of shape (n,)."""
    rows, n = x.shape
    for row in range(rows):
        m, r = mean[row], rstd[row]
        along_one = along_x = np.float32(0)
        for i in range(n):
            g = dy[row, i] * weight[i]
            along_one += g
            along_x += g * (x[row, i] - m) * r
        a, p = along_one / np.float32(n), along_x / np.float32(n)
        for i in range(n):
            x_hat = (x[row, i] - m) * r
            dx[row, i] = (dy[row, i] * weight[i] - a - x_hat * p) * r
            dweight[i] += dy[row, i] * x_hat
            dbias[i] += dy[row, i]


@compiled
def lanes(kind, x, y, stats, rows, w, b, first, last, n, eps):
    for row in range(first, last):
        at = row * n
        s = spread(F32)
        for i, k in vectors(n):
            s += load(kind, x, at + i, k)
        mean = np.float32(total(s) / n)
        m, s2 = spread(mean), spread(F32)
        for i, k in vectors(n):
            t = keep(load(kind, x, at + i, k) - m, k)
            s2 = fma(t, t, s2)
        rstd = np.float32(1.0 / math.sqrt(total(s2) / n + eps))
        r = spread(rstd)
        for i, k in vectors(n):
            x_hat = (load(kind, x, at + i, k) - m) * r
            value = fma(x_hat, load(F32, w, i, k), load(F32, b, i, k))
            store(kind, y, at + i, k, value)
        write(stats, row, mean)
        write(stats, 2 * rows + row, rstd)


@compiled
def lanes_backward(kind, dy, x, dx, stats, rows, w, partial, first, last, n):
    dw, db = partial, partial + 4 * n
    for row in range(first, last):
        at = row * n
        m, r = spread(read(stats, row)), spread(read(stats, 2 * rows + row))
        s1, s2 = spread(F32), spread(F32)
        for i, k in vectors(n):
            g = load(kind, dy, at + i, k) * load(F32, w, i, k)
            x_hat = (load(kind, x, at + i, k) - m) * r
            s1, s2 = s1 + g, fma(g, x_hat, s2)
        a, p = spread(np.float32(-total(s1) / n)), spread(np.float32(-total(s2) / n))
        for i, k in vectors(n):
            g = load(kind, dy, at + i, k)
            x_hat = (load(kind, x, at + i, k) - m) * r
            value = fma(x_hat, p, fma(g, load(F32, w, i, k), a)) * r
            store(kind, dx, at + i, k, value)
            store(F32, dw, i, k, fma(g, x_hat, load(F32, dw, i, k)))
            store(F32, db, i, k, g + load(F32, db, i, k))


@compiled
def corrected(kind, x, y, stats, rows, w, b, first, last, n, eps):
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
            x_hat = ((load(kind, x, at + i, k) - m) - c) * r
            value = fma(x_hat, load(F32, w, i, k), load(F32, b, i, k))
            store(kind, y, at + i, k, value)
        write(stats, row, mean)
        write(stats, rows + row, np.float32(missed))
        write(stats, 2 * rows + row, rstd)


@compiled
def corrected_backward(kind, dy, x, dx, stats, rows, w, partial, first, last, n):
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
            g = load(kind, dy, at + i, k)
            x_hat = ((load(kind, x, at + i, k) - m) - c) * r
            value = fma(x_hat, p, fma(g, load(F32, w, i, k), a)) * r
            store(kind, dx, at + i, k, value)
            store(F32, dw, i, k, fma(g, x_hat, load(F32, dw, i, k)))
            store(F32, db, i, k, g + load(F32, db, i, k))


@compiled
def streamed(kind, x, y, stats, rows, w, b, first, last, n, eps, streaming):
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
            x_hat = ((load(kind, x, at + i, k) - m) - c) * r
            value = fma(x_hat, load(F32, w, i, k), load(F32, b, i, k))
            put(kind, y, at + i, k, value, streaming)
        write(stats, row, mean)
        write(stats, rows + row, np.float32(missed))
        write(stats, 2 * rows + row, rstd)
    if streaming:
        finish_streams()


@compiled
def streamed_backward(kind, dy, x, dx, stats, rows, w, partial, first, last, n, streaming):
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
            g = load(kind, dy, at + i, k)
            x_hat = ((load(kind, x, at + i, k) - m) - c) * r
            value = fma(x_hat, p, fma(g, load(F32, w, i, k), a)) * r
            put(kind, dx, at + i, k, value, streaming)
            store(F32, dw, i, k, fma(g, x_hat, load(F32, dw, i, k)))
            store(F32, db, i, k, g + load(F32, db, i, k))
    if streaming:
        finish_streams()


@compiled
def ahead_backward(kind, dy, x, dx, stats, rows, w, partial, first, last, n, streaming):
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
            put(kind, dx, at + i, k, value, streaming)
            store(F32, dw, i, k, fma(g, x_hat, load(F32, dw, i, k)))
            store(F32, db, i, k, g + load(F32, db, i, k))
    if streaming:
        finish_streams()


@compiled
def side_by_side_backward(
    kind, dy, x, dx, stats, rows, w, beside, partial, sums, first, last, n, streaming
):
    """Two rows at a time, of an even number, without `beside`: a step that the back end leaves."""
    dw, db = partial, partial + 4 * n
    for row in range(first, last, 2):
        at, below = row * n, row * n + n
        m, r = spread(read(stats, row)), spread(read(stats, 2 * rows + row))
        c = spread(read(stats, rows + row))
        m2, r2 = spread(read(stats, row + 1)), spread(read(stats, 2 * rows + row + 1))
        c2 = spread(read(stats, rows + row + 1))
        s1, s2, s3, s4 = spread(F32), spread(F32), spread(F32), spread(F32)
        for i, k in vectors(n):
            g = load(kind, dy, at + i, k) * load(F32, w, i, k)
            x_hat = ((load(kind, x, at + i, k) - m) - c) * r
            s1, s2 = s1 + g, fma(g, x_hat, s2)
            g = load(kind, dy, below + i, k) * load(F32, w, i, k)
            x_hat = ((load(kind, x, below + i, k) - m2) - c2) * r2
            s3, s4 = s3 + g, fma(g, x_hat, s4)
        a, p = spread(np.float32(-total(s1) / n)), spread(np.float32(-total(s2) / n))
        a2, p2 = spread(np.float32(-total(s3) / n)), spread(np.float32(-total(s4) / n))
        for i, k in vectors(n):
            fetch(kind, x, below + n + i)
            fetch(kind, dy, below + n + i)
            fetch(kind, x, below + 2 * n + i)
            fetch(kind, dy, below + 2 * n + i)
            g = load(kind, dy, at + i, k)
            x_hat = ((load(kind, x, at + i, k) - m) - c) * r
            put(kind, dx, at + i, k, fma(x_hat, p, fma(g, load(F32, w, i, k), a)) * r, streaming)
            t1, t2 = fma(g, x_hat, load(F32, dw, i, k)), g + load(F32, db, i, k)
            g = load(kind, dy, below + i, k)
            x_hat = ((load(kind, x, below + i, k) - m2) - c2) * r2
            value = fma(x_hat, p2, fma(g, load(F32, w, i, k), a2)) * r2
            put(kind, dx, below + i, k, value, streaming)
            store(F32, dw, i, k, fma(g, x_hat, t1))
            store(F32, db, i, k, g + t2)
        if sums and ((row + 1) % FLUSH == FLUSH - 1 or row + 2 == last):
            flush(partial, sums, 2 * n)
    if streaming:
        finish_streams()
