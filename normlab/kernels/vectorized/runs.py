"""Batch, group and instance norm where the positions of a channel lie side by side.

A unit is what shares a mean: a channel of the batch, or a group of channels of a sample. It is made
of segments, each the positions of one channel in one sample. A unit is read from memory once, while
the one before it is written, and twice more from the cache.
"""

from __future__ import annotations

import math

import numpy as np

from normlab.kernels.vectorized.compiling import compiled, inlined
from normlab.kernels.vectorized.rows import BLOCK, centered_sums, put, row_sum
from normlab.kernels.vectorized.vectors import (
    LANES,
    add_number,
    finish_streams,
    fma,
    load,
    read,
    spread,
    total,
    write,
)


@inlined
def halves(value):
    """A float64 as two numbers in float32: itself rounded, and what that missed."""
    rounded = np.float32(value)
    return spread(rounded), spread(np.float32(value - rounded))


@inlined
def run_step(kind, x, y, at, k, following, m, c, scale, rest, bias, s, streaming):
    t = (load(kind, x, at, k) - m) - c
    put(kind, y, at, k, fma(t, scale, fma(t, rest, bias)), streaming)
    return s + load(kind, x, following, k)


@compiled
def normalize(
    kind, x, y, stats, units, w, b, first, last, segments, n, unit_stride, stride,
    groups, step, inc, eps, streaming,
):  # fmt: skip
    f32 = np.float32(0)
    full = n - n % LANES
    count = segments * n
    s = 0.0
    for j in range(segments):
        s += row_sum(kind, x, first * unit_stride + j * stride, n)
    for unit in range(first, last):
        base = unit * unit_stride
        mean = np.float32(s / count)
        sum1 = 0.0
        sum2 = 0.0
        for j in range(segments):
            one, two = centered_sums(kind, x, base + j * stride, n, mean)
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
        further = unit_stride if unit + 1 < last else 0
        s = 0.0
        for j in range(segments):
            channel = (unit % groups) * step + j * inc
            scale, rest = halves(rstd * read(w, channel))
            bias = spread(read(b, channel))
            at = base + j * stride
            v = spread(f32)
            for i in range(at, at + full, LANES):
                v = run_step(
                    kind, x, y, i, LANES, i + further, m, c, scale, rest, bias, v, streaming
                )
            if full < n:
                i = at + full
                v = run_step(
                    kind, x, y, i, n - full, i + further, m, c, scale, rest, bias, v, False
                )
            s += total(v)
    if streaming:
        finish_streams()


@inlined
def run_sums_step(kind, dy, x, at, k, m, c, s1, s2):
    g = load(kind, dy, at, k)
    return s1 + g, fma(g, (load(kind, x, at, k) - m) - c, s2)


@inlined
def run_sums(kind, dy, x, at, n, m, c):
    """Sums of dy and of dy * (x - mean), in float64 over blocks."""
    sum1 = 0.0
    sum2 = 0.0
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        full = size - size % LANES
        s1, s2 = spread(np.float32(0)), spread(np.float32(0))
        for i in range(at + start, at + start + full, LANES):
            s1, s2 = run_sums_step(kind, dy, x, i, LANES, m, c, s1, s2)
        if full < size:
            s1, s2 = run_sums_step(kind, dy, x, at + start + full, size - full, m, c, s1, s2)
        sum1 += total(s1)
        sum2 += total(s2)
    return sum1, sum2


@inlined
def run_gradient_step(kind, dy, x, dx, at, k, m, c, scale, rest, a, p, streaming):
    t = (load(kind, x, at, k) - m) - c
    g = load(kind, dy, at, k)
    put(kind, dx, at, k, fma(g, scale, fma(t, p, fma(g, rest, a))), streaming)


@compiled
def normalize_backward(
    kind, dy, x, dx, stats, units, w, sums, channels, first, last, segments, n,
    unit_stride, stride, groups, step, inc, streaming,
):  # fmt: skip
    full = n - n % LANES
    count = segments * n
    for unit in range(first, last):
        base = unit * unit_stride
        m, c = spread(read(stats, unit)), spread(read(stats, units + unit))
        rstd = np.float64(read(stats, 2 * units + unit))
        sum1 = 0.0
        sum2 = 0.0
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
            scale, rest = halves(rstd * read(w, (unit % groups) * step + j * inc))
            at = base + j * stride
            for i in range(at, at + full, LANES):
                run_gradient_step(kind, dy, x, dx, i, LANES, m, c, scale, rest, a, p, streaming)
            if full < n:
                i = at + full
                run_gradient_step(kind, dy, x, dx, i, n - full, m, c, scale, rest, a, p, False)
    if streaming:
        finish_streams()
