"""Batch, group and instance norm where the positions of a channel lie side by side.

A unit is what shares a mean: a channel of the batch, or a group of channels of a sample. It is made
of segments, each the positions of one channel in one sample. A unit is read from memory once, while
the one before it is written, and twice more from the cache.
"""

from __future__ import annotations

import math

import numpy as np

from normlab.kernels.vectorized.compiling import compiled, inlined, vectors
from normlab.kernels.vectorized.rows import BLOCK, F32, centered_sums, put, row_sum
from normlab.kernels.vectorized.vectors import (
    add_number,
    fetch,
    finish_streams,
    fma,
    load,
    read,
    spread,
    total,
    write,
)


@inlined
def high_and_low(value):
    """A float64 as two numbers in float32: itself rounded, and what that missed."""
    rounded = np.float32(value)
    return spread(rounded), spread(np.float32(value - rounded))


@compiled
def normalize(
    kind, x, y, stats, units, w, b, first, last, segments, n, unit_stride, stride,
    groups, step, inc, eps, streaming,
):  # fmt: skip
    count = segments * n
    # segments without a gap are summed as one, with fewer ends
    parts, size = (1, count) if stride == n else (segments, n)
    for unit in range(first, last):
        base = unit * unit_stride
        s = 0.0
        for j in range(parts):
            s += row_sum(kind, x, base + j * stride, size)
        mean = np.float32(s / count)
        sum1 = sum2 = 0.0
        for j in range(parts):
            one, two = centered_sums(kind, x, base + j * stride, size, mean)
            sum1 += one
            sum2 += two
        missed = sum1 / count
        var = max(sum2 / count - missed * missed, 0.0)
        rstd = 1.0 / math.sqrt(var + eps)
        write(stats, unit, mean)
        write(stats, units + unit, np.float32(missed))
        write(stats, 2 * units + unit, np.float32(rstd))
        write(stats, 3 * units + unit, np.float32(var))
        m, c = spread(mean), spread(np.float32(missed))
        for j in range(segments):
            channel = (unit % groups) * step + j * inc
            scale, rest = high_and_low(rstd * read(w, channel))
            bias = spread(read(b, channel))
            at = base + j * stride
            for i, k in vectors(n):
                if parts > 1:
                    fetch(kind, x, at + unit_stride + i)
                t = (load(kind, x, at + i, k) - m) - c
                put(kind, y, at + i, k, fma(t, scale, fma(t, rest, bias)), streaming)
    if streaming:
        finish_streams()


@inlined
def run_sums(kind, dy, x, at, n, m, c):
    """Sums of dy and of dy * (x - mean), in float64 over blocks."""
    sum1 = sum2 = 0.0
    for begin in range(0, n, BLOCK):
        s1, s2 = spread(F32), spread(F32)
        for i, k in vectors(begin, min(begin + BLOCK, n)):
            g = load(kind, dy, at + i, k)
            s1, s2 = s1 + g, fma(g, (load(kind, x, at + i, k) - m) - c, s2)
        sum1 += total(s1)
        sum2 += total(s2)
    return sum1, sum2


@compiled
def normalize_backward(
    kind, dy, x, dx, stats, units, w, sums, channels, first, last, segments, n,
    unit_stride, stride, groups, step, inc, streaming,
):  # fmt: skip
    count = segments * n
    for unit in range(first, last):
        base = unit * unit_stride
        m, c = spread(read(stats, unit)), spread(read(stats, units + unit))
        rstd = np.float64(read(stats, 2 * units + unit))
        sum1 = sum2 = 0.0
        for j in range(segments):
            channel = (unit % groups) * step + j * inc
            one, two = run_sums(kind, dy, x, base + j * stride, n, m, c)
            two *= rstd
            add_number(sums, channel, two)
            add_number(sums, channels + channel, one)
            weight = read(w, channel)
            sum1 += weight * one
            sum2 += weight * two
        # dx = rstd (dy w - mean(dy w) - x_hat mean(dy w x_hat)), multiplied out
        a = spread(np.float32(-rstd * sum1 / count))
        p = spread(np.float32(-rstd * rstd * sum2 / count))
        for j in range(segments):
            scale, rest = high_and_low(rstd * read(w, (unit % groups) * step + j * inc))
            at = base + j * stride
            for i, k in vectors(n):
                if stride > n:
                    fetch(kind, x, at + unit_stride + i)
                    fetch(kind, dy, at + unit_stride + i)
                t = (load(kind, x, at + i, k) - m) - c
                g = load(kind, dy, at + i, k)
                put(kind, dx, at + i, k, fma(g, scale, fma(t, p, fma(g, rest, a))), streaming)
    if streaming:
        finish_streams()
