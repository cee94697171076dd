"""Layer norm in Triton, a program for each row: two steps before the back end's own programs.

Tests run them in Triton's interpreter; what each gains on a GPU was not measured.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def row(x, y, weight, bias, stats, rows, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    t = tl.load(x + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(t, 0) / n
    t = tl.where(inside, t - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(t * t, 0) / n + eps)
    w = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * n + columns, (t * rstd * w + b).to(y.dtype.element_ty), mask=inside)
    tl.store(stats + row, mean)
    tl.store(stats + 2 * rows + row, rstd)


@triton.jit
def row_backward(dy, x, dx, weight, stats, sums, rows, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    at = row * n + columns
    g = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    t = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    t = t - tl.load(stats + row)
    rstd = tl.load(stats + 2 * rows + row)
    x_hat = tl.where(inside, t * rstd, 0.0)
    tl.atomic_add(sums + columns, g * x_hat, mask=inside)
    tl.atomic_add(sums + n + columns, g, mask=inside)
    g = g * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    h = g - tl.sum(g, 0) / n - x_hat * (tl.sum(g * x_hat, 0) / n)
    tl.store(dx + at, (h * rstd).to(dx.dtype.element_ty), mask=inside)


@triton.jit
def corrected(x, y, weight, bias, stats, rows, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    t = tl.load(x + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(t, 0) / n
    t = tl.where(inside, t - mean, 0.0)
    missed = tl.sum(t, 0) / n  # what the rounding of the mean left
    t = tl.where(inside, t - missed, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(t * t, 0) / n + eps)
    w = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * n + columns, (t * rstd * w + b).to(y.dtype.element_ty), mask=inside)
    tl.store(stats + row, mean)
    tl.store(stats + rows + row, missed)
    tl.store(stats + 2 * rows + row, rstd)


@triton.jit
def corrected_backward(dy, x, dx, weight, stats, sums, rows, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    at = row * n + columns
    g = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    t = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    t = t - tl.load(stats + row)
    t = t - tl.load(stats + rows + row)
    rstd = tl.load(stats + 2 * rows + row)
    x_hat = tl.where(inside, t * rstd, 0.0)
    tl.atomic_add(sums + columns, g * x_hat, mask=inside)
    tl.atomic_add(sums + n + columns, g, mask=inside)
    g = g * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    h = g - tl.sum(g, 0) / n - x_hat * (tl.sum(g * x_hat, 0) / n)
    tl.store(dx + at, (h * rstd).to(dx.dtype.element_ty), mask=inside)
