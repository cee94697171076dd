"""Layer norm and RMS norm in Triton, forward and backward; the extra `normlab[gpu]`.

Tests run them in Triton's interpreter on a CPU, and `make gpu` runs them on a GPU. The files
`gpu_kernel_times.json` and `gpu_kernel_times_graphs.json` in `book/_data` have their times on the
one kind of GPU where they were measured, an H100, with their launches and without; the numbers of
threads and registers below were chosen there.

A program has one row in registers in the forward pass. In the backward pass there are as many
programs as the GPU runs at the same time; each takes rows at equal distances, and sums the weight's
gradient over its rows in float32; the sums of all programs are added by torch.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from normlab.kernels.differentiation import Gradients, Needs

LARGEST = 16384  # features; longer rows do not fit the registers of a program
# A thread has 16 elements of a row: fewer, and too few bytes are on their way; more do not fit.
ELEMENTS = 16
# Of a backward pass, on each multiprocessor. With 128 registers a thread, these fill its 65,536.
WARPS = 16


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


def _normalize(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, eps: float, *, centered: bool
) -> tuple[Tensor, Tensor]:
    """Norm of rows; returns y and, in rows of the second, mean, missed, rstd, or rstd alone."""
    x = x.contiguous()
    rows = x.numel() // n
    y = torch.empty_like(x)
    stats = x.new_empty((3 if centered else 1, rows), dtype=torch.float32)
    w, b = (x if p is None else p.contiguous() for p in (weight, bias))  # not read where None
    forward[(rows,)](
        x, y, w, b, stats, rows, n, eps, CENTERED=centered, HAS_WEIGHT=weight is not None,
        HAS_BIAS=bias is not None, BLOCK=triton.next_power_of_2(n), num_warps=_warps(n),
    )  # fmt: skip
    return y, stats


def _differentiate(
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    n: int,
    eps: float,
    *,
    centered: bool,
) -> Gradients:
    """Gradients of :func:`_normalize`."""
    dy, x = dy.contiguous(), x.contiguous()
    rows = x.numel() // n
    dx = torch.empty_like(x)
    warps = _warps(n)
    programs = min(rows, _multiprocessors(x.device) * max(1, WARPS // warps))
    partial = x.new_empty((programs, 2, n), dtype=torch.float32)
    w = x if weight is None else weight.contiguous()
    backward[(programs,)](
        dy, x, dx, w, stats, partial, rows, n, CENTERED=centered, HAS_WEIGHT=weight is not None,
        BLOCK=triton.next_power_of_2(n), EACH=triton.cdiv(rows, programs), num_warps=warps,
        **_registers(warps),
    )  # fmt: skip
    dweight, dbias = partial.sum(0)
    return dx, dweight if needs[1] else None, dbias if needs[2] else None


def _warps(n: int) -> int:
    return min(32, max(1, triton.next_power_of_2(n) // (32 * ELEMENTS)))


def _registers(warps: int) -> dict[str, Any]:
    """At most so many a thread that all programs of a backward pass run at the same time."""
    if torch.version.hip is not None:
        return {}  # that compiler has no such setting
    return {"maxnreg": 65536 // (32 * max(WARPS, warps))}


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1  # in the interpreter
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


layer_norm = functools.partial(_normalize, centered=True)
layer_norm_backward = functools.partial(_differentiate, centered=True)
rms_norm = functools.partial(_normalize, centered=False)
rms_norm_backward = functools.partial(_differentiate, centered=False)
