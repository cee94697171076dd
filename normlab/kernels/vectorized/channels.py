"""Batch, group and instance norm: the loops for either layout, and arithmetic on their sums.

Statistics are a tensor of four rows: the mean, what its rounding missed, rstd and the variance of
each channel (batch norm) or of each group of each sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from normlab.kernels.differentiation import Gradients, Needs
from normlab.kernels.vectorized import columns, runs
from normlab.kernels.vectorized.blocks import (
    KINDS,
    as_vector,
    count_blocks,
    count_shares,
    run,
    streams,
)

_SEEN = 32  # rows whose mean is subtracted before squares are summed


def _in_columns(x: Tensor) -> bool:
    """Whether the channels of a position lie side by side."""
    return x.dim() == 2 or (not x.is_contiguous() and x.movedim(1, -1).is_contiguous())


def _as_columns(x: Tensor) -> Tensor:
    """x in this layout, copied only if it has another."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


class _Units:
    """What shares a mean, and where it lies; `groups` is None for batch norm."""

    def __init__(self, x: Tensor, groups: int | None) -> None:
        batch, channels = x.shape[:2]
        n = x.numel() // (batch * channels)
        self.channels, self.positions = channels, n
        if groups is None:
            self.units, self.segments, self.groups = channels, batch, channels
            self.strides = (n, channels * n, channels, 1, 0)
        else:
            self.units, self.segments, self.groups = batch * groups, channels // groups, groups
            self.strides = (n * self.segments, n, groups, self.segments, 1)
        self.blocks = count_blocks(self.units, self.segments * n)


def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Group norm; instance norm has a group for each channel. Without groups, batch norm."""
    if _in_columns(x):
        return _normalize_columns(x, weight, bias, groups, eps)
    x = x.contiguous()
    u = _Units(x, groups)
    y = torch.empty_like(x)
    stats = x.new_empty((4, u.units), dtype=torch.float32)
    w, b = as_vector(weight, u.channels, 1.0), as_vector(bias, u.channels, 0.0)
    kind, streaming = KINDS[x.dtype], streams(y, u.positions)
    at = x.data_ptr(), y.data_ptr(), stats.data_ptr(), u.units, w.data_ptr(), b.data_ptr()

    def block(_: int, first: int, last: int) -> None:
        runs.normalize(kind, *at, first, last, u.segments, u.positions, *u.strides, eps, streaming)

    run(block, u.units, count_shares(u.units, u.segments * u.positions))
    return y, stats


def group_norm_backward(
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    groups: int | None,
    eps: float,
) -> Gradients:
    """Gradients of :func:`group_norm`."""
    if _in_columns(x):
        return _columns_backward(dy, x, stats, weight, needs, groups)
    dy, x = dy.contiguous(), x.contiguous()
    u = _Units(x, groups)
    dx = torch.empty_like(x)
    w = as_vector(weight, u.channels, 1.0)
    sums = x.new_zeros((u.blocks, 2, u.channels), dtype=torch.float64)
    kind, streaming = KINDS[x.dtype], streams(dx, u.positions)
    at = dy.data_ptr(), x.data_ptr(), dx.data_ptr(), stats.data_ptr(), u.units, w.data_ptr()
    sums_at = sums.data_ptr()

    def block(i: int, first: int, last: int) -> None:
        s = sums_at + 16 * u.channels * i
        shape = u.segments, u.positions, *u.strides
        runs.normalize_backward(kind, *at, s, u.channels, first, last, *shape, streaming)

    run(block, u.units, u.blocks)
    both = sums.sum(0)
    return dx, both[0] if needs[1] else None, both[1] if needs[2] else None


# Columns: one sample of all positions for batch norm, the samples one by one for the others.


def _samples(x: Tensor, groups: int | None) -> tuple[int, int, int]:
    """Number of samples, rows of each, and columns."""
    channels = x.shape[1]
    rows = x.numel() // channels
    return (1, rows, channels) if groups is None else (x.shape[0], rows // x.shape[0], channels)


def _run_rows(call: Callable[..., None], samples: int, rows: int, size: int) -> None:
    """Run call(number, sample, first, last) for blocks of rows, none with rows of two samples."""
    parts = count_blocks(rows, size)
    edges = [rows * i // parts for i in range(parts + 1)]
    blocks = [
        (s, s * rows + edges[i], s * rows + edges[i + 1])
        for s in range(samples)
        for i in range(parts)
    ]

    def some(_: int, start: int, stop: int) -> None:
        for i in range(start, stop):
            call(i, *blocks[i])

    run(some, len(blocks), min(len(blocks), count_blocks(samples * rows, size)))


def _column_sums(loop: Any, kind: object, at: tuple[int, ...], like: Tensor, groups: int | None,
                 vectors: tuple[Tensor, ...]) -> Tensor:  # fmt: skip
    """Two sums of each column of each sample, in float64."""
    samples, rows, n = _samples(like, groups)
    blocks = samples * count_blocks(rows, n)
    partial = like.new_zeros((blocks, 2, n), dtype=torch.float32)
    sums = like.new_zeros((blocks, 2, n), dtype=torch.float64)
    partial_at, sums_at = partial.data_ptr(), sums.data_ptr()
    vectors_at = [v.data_ptr() for v in vectors]

    def add(i: int, sample: int, first: int, last: int) -> None:
        row = [v + 4 * n * sample for v in vectors_at]
        loop(kind, *at, *row, partial_at + 8 * n * i, sums_at + 16 * n * i, first, last, n)

    _run_rows(add, samples, rows, n)
    return sums.view(samples, -1, 2, n).sum(1)


def _each_row(loop: Any, kind: object, at: tuple[int, ...], result: Tensor, groups: int | None,
              vectors: tuple[Tensor, ...]) -> None:  # fmt: skip
    """Call a loop that writes `result`, with the vectors of each sample."""
    samples, rows, n = _samples(result, groups)
    streaming = streams(result, n)
    vectors_at = [(v.data_ptr(), 4 * n if v.dim() == 2 else 0) for v in vectors]

    def write(_: int, sample: int, first: int, last: int) -> None:
        row = [v + step * sample for v, step in vectors_at]
        loop(kind, *at, *row, first, last, n, streaming)

    _run_rows(write, samples, rows, n)


def _per_column(stats: Tensor, samples: int, channels: int) -> Tensor:
    """A statistic of each column of each sample, from that of its group."""
    each = stats.reshape(samples, -1, 1)
    wide = each.expand(-1, -1, channels // each.shape[1])
    return wide.reshape(samples, channels).contiguous()


def _high_and_low(values: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers in float64 as two in float32: themselves rounded, and what that missed."""
    rounded = values.float()
    return rounded, (values - rounded).float()


def _normalize_columns(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int | None, eps: float
) -> tuple[Tensor, Tensor]:
    x = _as_columns(x)
    samples, rows, n = _samples(x, groups)
    matrix = x.movedim(1, -1).reshape(samples, rows, n)
    shift = matrix[:, :_SEEN].float().mean(1)
    kind = KINDS[x.dtype]
    while True:
        sums = _column_sums(columns.moments, kind, (x.data_ptr(),), x, groups, (shift,))
        first, second = sums.unbind(1)  # (samples, n)
        off = first / rows
        squares = (second - off * first).clamp_(min=0)  # around the mean of the column
        means = shift.double() + off
        # mostly, the mean of the first rows is near enough for the squares around it; once more
        # where it is not, and then it is
        if torch.equal(shift, means.float()) or not bool((off * first > 4 * squares).any()):
            break
        shift = means.float()
    shared = means.view(samples, n if groups is None else groups, -1)
    mean = shared.mean(2)
    between = (shared - mean[:, :, None]).square().sum(2) * rows
    count = rows * shared.shape[2]
    var = (squares.view(shared.shape).sum(2) + between) / count
    rounded = mean.float()
    rstd = (var + eps).rsqrt()
    stats = torch.stack([rounded, (mean - rounded).float(), rstd.float(), var.float()]).view(4, -1)
    w, b = as_vector(weight, n, 1.0), as_vector(bias, n, 0.0)
    y = torch.empty_like(x)
    at = x.data_ptr(), y.data_ptr()
    near, missed = (_per_column(stats[i], samples, n) for i in range(2))
    factors = _high_and_low(_per_column(rstd, samples, n) * w)
    _each_row(columns.apply, kind, at, y, groups, (near, missed, *factors, b))
    return y, stats


def _columns_backward(
    dy: Tensor, x: Tensor, stats: Tensor, weight: Tensor | None, needs: Needs, groups: int | None
) -> Gradients:
    x, dy = _as_columns(x), _as_columns(dy)
    samples, rows, n = _samples(x, groups)
    kind = KINDS[x.dtype]
    mean, missed, rstd = (_per_column(stats[i], samples, n) for i in range(3))
    rstd = rstd.double()
    w = as_vector(weight, n, 1.0)
    pair = dy.data_ptr(), x.data_ptr()
    sums = _column_sums(columns.products, kind, pair, x, groups, (mean, missed))  # (samples, 2, n)
    sums[:, 0] *= rstd
    shared = (sums * w).view(samples, 2, n if groups is None else groups, -1)
    size = shared.shape[3]
    means = -shared.sum(3, keepdim=True) / (rows * size)
    p, a = means.expand(-1, -1, -1, size).reshape(samples, 2, n).unbind(1)
    # dx = rstd (dy w + a + x_hat p), multiplied out
    factors = (*_high_and_low(rstd * w), (rstd * a).float(), (rstd * rstd * p).float())
    dx = torch.empty_like(x)
    vectors = (mean, missed, *factors)
    _each_row(columns.gradient, kind, (*pair, dx.data_ptr()), dx, groups, vectors)
    both = sums.sum(0)
    return dx, both[0] if needs[1] else None, both[1] if needs[2] else None


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Batch norm with the statistics of the batch."""
    return group_norm(x, weight, bias, None, eps)


def batch_norm_backward(
    dy: Tensor, x: Tensor, stats: Tensor, weight: Tensor | None, needs: Needs, eps: float
) -> Gradients:
    """Gradients of :func:`batch_norm`."""
    return group_norm_backward(dy, x, stats, weight, needs, None, eps)
