"""The norms as loops over vectors, compiled by numba; the extra `normlab[kernels]`.

Each function has a namesake with the same arguments in `normlab.kernels.chunks`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from normlab.kernels.chunks import scale, scale_backward  # noqa: F401 -- re-exported
from normlab.kernels.chunks.pieces import Gradients, Needs
from normlab.kernels.vectorized import added, ladder, sums
from normlab.kernels.vectorized import rows as loops
from normlab.kernels.vectorized.blocks import (
    KINDS,
    as_vector,
    count_blocks,
    count_shares,
    run,
    streams,
)
from normlab.kernels.vectorized.channels import (  # noqa: F401 -- re-exported
    batch_norm,
    batch_norm_backward,
    group_norm,
    group_norm_backward,
)
from normlab.kernels.vectorized.compiling import FOLDER, converts_halves  # noqa: F401
from normlab.kernels.vectorized.trial import try_compiler  # noqa: F401 -- re-exported

DTYPES = (torch.float32, torch.bfloat16, *((torch.float16,) if converts_halves() else ()))


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, features: int, eps: float
) -> tuple[Tensor, Tensor]:
    """Layer norm of rows; gives y and rows of mean, missed, rstd."""
    x = x.contiguous()
    y = torch.empty_like(x)
    rows = x.numel() // features
    stats = x.new_empty(3, rows, dtype=torch.float32)
    w, b = as_vector(weight, features, 1.0), as_vector(bias, features, 0.0)
    kind, streaming = KINDS[x.dtype], streams(y, features)
    at = x.data_ptr(), y.data_ptr(), stats.data_ptr(), rows, w.data_ptr(), b.data_ptr()

    def block(_: int, first: int, last: int) -> None:
        ladder.layer_norm(kind, *at, first, last, features, eps, streaming)

    run(block, rows, count_shares(rows, features))
    return y, stats


def rms_norm(
    x: Tensor, weight: Tensor | None, bias: None, features: int, eps: float
) -> tuple[Tensor, Tensor]:
    """RMS norm of rows; gives y and rstd."""
    x = x.contiguous()
    y = torch.empty_like(x)
    rows = x.numel() // features
    stats = x.new_empty(1, rows, dtype=torch.float32)
    w = as_vector(weight, features, 1.0)
    kind, streaming = KINDS[x.dtype], streams(y, features)
    at = x.data_ptr(), y.data_ptr(), stats.data_ptr(), w.data_ptr()

    def block(_: int, first: int, last: int) -> None:
        loops.rms_norm(kind, *at, first, last, features, eps, streaming)

    run(block, rows, count_shares(rows, features))
    return y, stats


def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    features: int,
    eps: float,
    beside: Tensor | None = None,
) -> Gradients:
    """Gradients of :func:`layer_norm`.

    `beside` is added to the input's gradient, before it is rounded.
    """
    w = as_vector(weight, features, 1.0)
    dweight, dbias = torch.empty_like(w), torch.empty_like(w)
    loop, whole = ladder.layer_norm_backward, sums.layer_norm_backward
    dx = _differentiate(loop, whole, dy, x, stats, w, beside, dweight.data_ptr(), dbias.data_ptr())
    return dx, dweight if needs[1] else None, dbias if needs[2] else None


def rms_norm_backward(
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    features: int,
    eps: float,
    beside: Tensor | None = None,
) -> Gradients:
    """Gradients of :func:`rms_norm`, with `beside` as above."""
    w = as_vector(weight, features, 1.0)
    dweight = torch.empty_like(w)
    loop, whole = loops.rms_norm_backward, sums.rms_norm_backward
    dx = _differentiate(loop, whole, dy, x, stats, w, beside, dweight.data_ptr(), 0)
    return dx, dweight if needs[1] else None, None


def _differentiate(
    loop: Any,
    whole: Any,
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    w: Tensor,
    beside: Tensor | None,
    dweight: int,
    dbias: int,
) -> Tensor:
    """The gradient of x; those of weight and bias are written to two addresses."""
    dy, x = dy.contiguous(), x.contiguous()
    dx = torch.empty_like(x)
    features = w.numel()
    rows = x.numel() // features
    kind = KINDS[x.dtype]
    other = 0
    if beside is not None:
        beside = beside.contiguous()
        other = beside.data_ptr()
    at = dy.data_ptr(), x.data_ptr(), dx.data_ptr(), stats.data_ptr(), rows, w.data_ptr(), other
    blocks = count_blocks(rows, features)
    if blocks == 1:
        whole(kind, *at, dweight, dbias, features, False)
        return dx
    streaming = streams(dx, features)
    found = x.new_zeros(blocks, 3 * features, dtype=torch.float64)
    found_at = found.data_ptr()

    def block(i: int, first: int, last: int) -> None:
        s = found_at + 24 * features * i
        loop(kind, *at, s + 16 * features, s, first, last, features, streaming)

    run(block, rows, blocks)
    sums.add_blocks(found.numpy(), features, dweight, dbias)
    return dx


def _add(
    loop: Any,
    statistics: int,
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    features: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum, its norm, and the statistics of the norm, in one pass over both tensors."""
    x, residual = x.contiguous(), residual.contiguous()
    total, y = torch.empty_like(x), torch.empty_like(x)
    rows = x.numel() // features
    stats = x.new_empty((statistics, rows), dtype=torch.float32)
    w, b = as_vector(weight, features, 1.0), as_vector(bias, features, 0.0)
    blocks = count_shares(rows, features)
    scratch = x.new_empty((blocks, features), dtype=torch.float32)
    kind, streaming = KINDS[x.dtype], streams(y, features) and streams(total, features)
    at = *(t.data_ptr() for t in (x, residual, total, y, stats)), rows, w.data_ptr(), b.data_ptr()
    scratch_at = scratch.data_ptr()

    def block(i: int, first: int, last: int) -> None:
        here = scratch_at + 4 * features * i
        loop(kind, *at, here, first, last, features, eps, streaming)

    run(block, rows, blocks)
    return total, y, stats


add_layer_norm = functools.partial(_add, added.add_layer_norm, 3)
add_rms_norm = functools.partial(_add, added.add_rms_norm, 1)
