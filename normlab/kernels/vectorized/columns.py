"""Batch, group and instance norm where the channels of a position lie side by side.

That is (N, C), and what torch calls channels_last. Each column of the matrix (positions, channels)
is a channel, and four loops serve all norms: sums of columns, the output, sums for the gradient,
and the gradient. What the sums of channels give for a group is arithmetic on a few numbers.
"""

from __future__ import annotations

from normlab.kernels.vectorized.compiling import compiled, vectors
from normlab.kernels.vectorized.rows import F32, flush, put
from normlab.kernels.vectorized.vectors import finish_streams, fma, load, store

FLUSH = 16  # rows whose sums stay in float32


@compiled
def moments(kind, x, shift, partial, sums, first, last, n):
    """Sums and sums of squares of the columns of rows `first` to `last`, minus `shift`.

    `partial` holds 2 n zeros in float32, `sums` 2 n numbers in float64, to which is added.
    """
    second = partial + 4 * n
    for row in range(first, last):
        for i, k in vectors(n):
            t = load(kind, x, row * n + i, k) - load(F32, shift, i, k)
            store(F32, partial, i, k, load(F32, partial, i, k) + t)
            store(F32, second, i, k, fma(t, t, load(F32, second, i, k)))
        if row % FLUSH == FLUSH - 1 or row + 1 == last:
            flush(partial, sums, 2 * n)


@compiled
def apply(kind, x, y, mean, missed, scale, rest, b, first, last, n, streaming):
    """y = (x - mean) rstd w + b; the product of rstd and w comes rounded, and what that missed."""
    for row in range(first, last):
        at = row * n
        for i, k in vectors(n):
            t = (load(kind, x, at + i, k) - load(F32, mean, i, k)) - load(F32, missed, i, k)
            value = fma(t, load(F32, rest, i, k), load(F32, b, i, k))
            put(kind, y, at + i, k, fma(t, load(F32, scale, i, k), value), streaming)
    if streaming:
        finish_streams()


@compiled
def products(kind, dy, x, mean, missed, partial, sums, first, last, n):
    """Sums over rows of dy * (x - mean), then of dy; the buffers are those of `moments`."""
    second = partial + 4 * n
    for row in range(first, last):
        at = row * n
        for i, k in vectors(n):
            g = load(kind, dy, at + i, k)
            t = (load(kind, x, at + i, k) - load(F32, mean, i, k)) - load(F32, missed, i, k)
            store(F32, partial, i, k, fma(g, t, load(F32, partial, i, k)))
            store(F32, second, i, k, load(F32, second, i, k) + g)
        if row % FLUSH == FLUSH - 1 or row + 1 == last:
            flush(partial, sums, 2 * n)


@compiled
def gradient(kind, dy, x, dx, mean, missed, scale, rest, a, p, first, last, n, streaming):
    """dx = dy scale + (x - mean) p + a, with a number for each column in all but dy and x."""
    for row in range(first, last):
        at = row * n
        for i, k in vectors(n):
            t = (load(kind, x, at + i, k) - load(F32, mean, i, k)) - load(F32, missed, i, k)
            g = load(kind, dy, at + i, k)
            h = fma(t, load(F32, p, i, k), fma(g, load(F32, rest, i, k), load(F32, a, i, k)))
            put(kind, dx, at + i, k, fma(g, load(F32, scale, i, k), h), streaming)
    if streaming:
        finish_streams()
