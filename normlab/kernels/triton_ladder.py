"""Layer norm in Triton as a ladder: a program for each row, then one change a step.

The last step, :func:`forward` and :func:`backward`, is what `triton_programs` launches, and has RMS
norm in it. Tests run all of them in Triton's interpreter; what each step gains on a GPU was not
measured.
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


@triton.jit
def forward(x, y, weight, bias, stats, rows, n, eps, CENTERED: tl.constexpr,
            HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    t = tl.load(x + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    if CENTERED:
        mean = tl.sum(t, 0) / n
        t = tl.where(inside, t - mean, 0.0)
        missed = tl.sum(t, 0) / n  # what the rounding of the mean left
        t = tl.where(inside, t - missed, 0.0)
        tl.store(stats + row, mean)
        tl.store(stats + rows + row, missed)
    rstd = 1.0 / tl.sqrt(tl.sum(t * t, 0) / n + eps)
    tl.store(stats + (2 * rows if CENTERED else 0) + row, rstd)
    value = t * rstd
    if HAS_WEIGHT:
        value *= tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        value += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * n + columns, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def backward(dy, x, dx, weight, stats, partial, rows, n, CENTERED: tl.constexpr,
             HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr, EACH: tl.constexpr):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    w = tl.full([BLOCK], 1.0, tl.float32)
    if HAS_WEIGHT:
        w = tl.load(weight + columns, mask=columns < n, other=0.0).to(tl.float32)
    dweight = tl.zeros([BLOCK], tl.float32)
    dbias = tl.zeros([BLOCK], tl.float32)
    for i in range(EACH):
        row = i * tl.num_programs(0).to(tl.int64) + tl.program_id(0)
        # a mask instead of a bound that depends on the program: it runs in the interpreter, too
        here = row < rows
        inside = columns < tl.where(here, n, 0)
        at = row * n + columns
        g = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        t = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        if CENTERED:
            t = t - tl.load(stats + row, mask=here, other=0.0)
            t = t - tl.load(stats + rows + row, mask=here, other=0.0)
        rstd = tl.load(stats + (2 * rows if CENTERED else 0) + row, mask=here, other=0.0)
        x_hat = tl.where(inside, t * rstd, 0.0)
        dweight += g * x_hat
        dbias += g
        g = g * w
        h = g - x_hat * (tl.sum(g * x_hat, 0) / n)
        if CENTERED:
            h = h - tl.sum(g, 0) / n
        tl.store(dx + at, (h * rstd).to(dx.dtype.element_ty), mask=inside)
    place = partial + tl.program_id(0) * 2 * n + columns
    tl.store(place, dweight, mask=columns < n)
    tl.store(place + n, dbias, mask=columns < n)
