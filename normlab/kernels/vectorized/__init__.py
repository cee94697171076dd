"""The norms as loops over vectors, compiled by numba; the extra `normlab[kernels]`.

Each function has a namesake with the same arguments in `normlab.kernels.chunked`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.kernels.chunked_channels import scale, scale_backward
from normlab.kernels.vectorized import rows as loops
from normlab.kernels.vectorized.blocks import KINDS, as_vector, count_blocks, run, streams
from normlab.kernels.vectorized.channels import (
    batch_norm,
    batch_norm_backward,
    group_norm,
    group_norm_backward,
)
from normlab.kernels.vectorized.compiling import converts_halves
from normlab.kernels.vectorized.sums import add_layer_norm, add_rms_norm

__all__ = [
    "LACKS",
    "MAY_FAIL",
    "add_layer_norm",
    "add_rms_norm",
    "batch_norm",
    "batch_norm_backward",
    "group_norm",
    "group_norm_backward",
    "layer_norm",
    "layer_norm_backward",
    "rms_norm",
    "rms_norm_backward",
    "scale",
    "scale_backward",
]

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
Needs = tuple[bool, bool, bool]

MAY_FAIL = True  # a compiler may find a processor, or a folder, that it cannot work with
LACKS = () if converts_halves() else (torch.float16,)  # what the other back end computes


def layer_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    features: int,
    eps: float,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Layer norm of rows; gives y (`out`, if there is one) and rows of mean, missed, rstd."""
    x = x.contiguous()
    y = torch.empty_like(x) if out is None else out
    rows = x.numel() // features
    stats = x.new_empty((3, rows), dtype=torch.float32)
    w, b = as_vector(weight, features, 1.0), as_vector(bias, features, 0.0)
    kind, streaming = KINDS[x.dtype], streams(y, features)
    at = x.data_ptr(), y.data_ptr(), stats.data_ptr(), rows, w.data_ptr(), b.data_ptr()

    def block(_: int, first: int, last: int) -> None:
        loops.layer_norm(kind, *at, first, last, features, eps, streaming)

    run(block, rows, count_blocks(rows, features))
    return y, stats


def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    features: int,
    eps: float,
    out: Tensor | None = None,
    beside: Tensor | None = None,
) -> Gradients:
    """Gradients of :func:`layer_norm`; those of 16-bit parameters in float64.

    `beside` is added to the input's gradient, before it is rounded.
    """
    dy, x = dy.contiguous(), x.contiguous()
    dx = torch.empty_like(x) if out is None else out
    rows = x.numel() // features
    w = as_vector(weight, features, 1.0)
    blocks = count_blocks(rows, features)
    partial = x.new_zeros((blocks, 2, features), dtype=torch.float32)
    sums = _wide_sums(partial, rows)
    kind, streaming = KINDS[x.dtype], streams(dx, features)
    beside = None if beside is None else beside.contiguous()
    other = 0 if beside is None else beside.data_ptr()
    at = dy.data_ptr(), x.data_ptr(), dx.data_ptr(), stats.data_ptr(), rows, w.data_ptr(), other
    partial_at, sums_at = partial.data_ptr(), 0 if sums is partial else sums.data_ptr()

    def block(i: int, first: int, last: int) -> None:
        p, s = partial_at + 8 * features * i, sums_at + 16 * features * i
        loops.layer_norm_backward(kind, *at, p, s, first, last, features, streaming)

    run(block, rows, blocks)
    both = sums[0] if blocks == 1 else sums.sum(0)
    if sums is not partial and (weight is None or weight.dtype == torch.float32):
        both = both.float()  # once for the two of them
    dweight, dbias = both.unbind()
    return dx, dweight if needs[1] else None, dbias if needs[2] else None


def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: None,
    features: int,
    eps: float,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """RMS norm of rows; gives y (in `out`, if there is one) and rstd."""
    x = x.contiguous()
    y = torch.empty_like(x) if out is None else out
    rows = x.numel() // features
    stats = x.new_empty((1, rows), dtype=torch.float32)
    w = as_vector(weight, features, 1.0)
    kind, streaming = KINDS[x.dtype], streams(y, features)
    at = x.data_ptr(), y.data_ptr(), stats.data_ptr(), w.data_ptr()

    def block(_: int, first: int, last: int) -> None:
        loops.rms_norm(kind, *at, first, last, features, eps, streaming)

    run(block, rows, count_blocks(rows, features))
    return y, stats


def rms_norm_backward(
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    features: int,
    eps: float,
    out: Tensor | None = None,
    beside: Tensor | None = None,
) -> Gradients:
    """Gradients of :func:`rms_norm`, with `beside` as above; that of the weight in float64."""
    dy, x = dy.contiguous(), x.contiguous()
    dx = torch.empty_like(x) if out is None else out
    rows = x.numel() // features
    w = as_vector(weight, features, 1.0)
    blocks = count_blocks(rows, features)
    partial = x.new_zeros((blocks, features), dtype=torch.float32)
    sums = _wide_sums(partial, rows)
    kind, streaming = KINDS[x.dtype], streams(dx, features)
    beside = None if beside is None else beside.contiguous()
    other = 0 if beside is None else beside.data_ptr()
    at = dy.data_ptr(), x.data_ptr(), dx.data_ptr(), stats.data_ptr(), w.data_ptr(), other
    partial_at, sums_at = partial.data_ptr(), 0 if sums is partial else sums.data_ptr()

    def block(i: int, first: int, last: int) -> None:
        p, s = partial_at + 4 * features * i, sums_at + 8 * features * i
        loops.rms_norm_backward(kind, *at, p, s, first, last, features, streaming)

    run(block, rows, blocks)
    return dx, (sums[0] if blocks == 1 else sums.sum(0)) if needs[1] else None, None


def _wide_sums(partial: Tensor, rows: int) -> Tensor:
    """Zeros in float64 of the same shape, or the same tensor where so few rows need none."""
    if rows <= loops.FLUSH and len(partial) == 1:
        return partial
    return torch.zeros_like(partial, dtype=torch.float64)
