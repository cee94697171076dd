"""Batch, group and instance norm where the channels of a position lie side by side.

That is (N, C), and what torch calls channels_last. Each column of the matrix (positions, channels)
is a channel, and four loops serve all norms: sums of columns, the output, sums for the gradient,
and the gradient. What the sums of channels give for a group is arithmetic on a few numbers.
"""

from __future__ import annotations

import numpy as np

from normlab.kernels.vectorized.compiling import compiled, inlined
from normlab.kernels.vectorized.ladder import flush, put
from normlab.kernels.vectorized.vectors import LANES, finish_streams, fma, load, store

FLUSH = 16  # rows whose sums stay in float32


@inlined
def moments_step(kind, x, shift, s1, s2, at, i, k):
    f32 = np.float32(0)
    t = load(kind, x, at + i, k) - load(f32, shift, i, k)
    store(f32, s1, i, k, load(f32, s1, i, k) + t)
    store(f32, s2, i, k, fma(t, t, load(f32, s2, i, k)))


@compiled
def moments(kind, x, shift, partial, sums, first, last, n):
    """Sums and sums of squares of the columns of rows `first` to `last`, minus `shift`.

    `partial` holds 2 n zeros in float32, `sums` 2 n numbers in float64, to which is added.
    """
    full = n - n % LANES
    for row in range(first, last):
        for i in range(0, full, LANES):
            moments_step(kind, x, shift, partial, partial + 4 * n, row * n, i, LANES)
        if full < n:
            moments_step(kind, x, shift, partial, partial + 4 * n, row * n, full, n - full)
        if row % FLUSH == FLUSH - 1 or row + 1 == last:
            flush(partial, sums, 2 * n)


@inlined
def apply_step(kind, x, y, mean, missed, scale, rest, b, at, i, k, streaming):
    f32 = np.float32(0)
    t = (load(kind, x, at + i, k) - load(f32, mean, i, k)) - load(f32, missed, i, k)
    value = fma(t, load(f32, rest, i, k), load(f32, b, i, k))
    put(kind, y, at + i, k, fma(t, load(f32, scale, i, k), value), streaming)


@compiled
def apply(kind, x, y, mean, missed, scale, rest, b, first, last, n, streaming):
    """y = (x - mean) rstd w + b; the product of rstd and w comes rounded, and what that missed."""
    full = n - n % LANES
    for row in range(first, last):
        at = row * n
        for i in range(0, full, LANES):
            apply_step(kind, x, y, mean, missed, scale, rest, b, at, i, LANES, streaming)
        if full < n:
            apply_step(kind, x, y, mean, missed, scale, rest, b, at, full, n - full, False)
    if streaming:
        finish_streams()


@inlined
def products_step(kind, dy, x, mean, missed, s1, s2, at, i, k):
    f32 = np.float32(0)
    g = load(kind, dy, at + i, k)
    t = (load(kind, x, at + i, k) - load(f32, mean, i, k)) - load(f32, missed, i, k)
    store(f32, s1, i, k, fma(g, t, load(f32, s1, i, k)))
    store(f32, s2, i, k, load(f32, s2, i, k) + g)


@compiled
def products(kind, dy, x, mean, missed, partial, sums, first, last, n):
    """Sums over rows of dy * (x - mean), then of dy; the buffers are those of `moments`."""
    full = n - n % LANES
    second = partial + 4 * n
    for row in range(first, last):
        at = row * n
        for i in range(0, full, LANES):
            products_step(kind, dy, x, mean, missed, partial, second, at, i, LANES)
        if full < n:
            products_step(kind, dy, x, mean, missed, partial, second, at, full, n - full)
        if row % FLUSH == FLUSH - 1 or row + 1 == last:
            flush(partial, sums, 2 * n)


@inlined
def gradient_step(kind, dy, x, dx, mean, missed, scale, rest, a, p, at, i, k, streaming):
    f32 = np.float32(0)
    t = (load(kind, x, at + i, k) - load(f32, mean, i, k)) - load(f32, missed, i, k)
    g = load(kind, dy, at + i, k)
    h = fma(t, load(f32, p, i, k), fma(g, load(f32, rest, i, k), load(f32, a, i, k)))
    put(kind, dx, at + i, k, fma(g, load(f32, scale, i, k), h), streaming)


@compiled
def gradient(kind, dy, x, dx, mean, missed, scale, rest, a, p, first, last, n, streaming):
    """dx = dy scale + (x - mean) p + a, with a number for each column in all but dy and x."""
    full = n - n % LANES
    for row in range(first, last):
        at = row * n
        for i in range(0, full, LANES):
            gradient_step(kind, dy, x, dx, mean, missed, scale, rest, a, p, at, i, LANES, streaming)
        if full < n:
            k = n - full
            gradient_step(kind, dy, x, dx, mean, missed, scale, rest, a, p, at, full, k, False)
    if streaming:
        finish_streams()
