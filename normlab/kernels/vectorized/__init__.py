"""The norms as loops over vectors, compiled by numba; the extra `normlab[kernels]`."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from normlab.kernels.differentiation import Gradients, Needs
from normlab.kernels.vectorized import added, rows, sums
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


def _normalize(
    loop: Any,
    statistics: int,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    features: int,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Norm of rows; gives y and, in rows of the second, mean, missed, rstd, or rstd alone."""
    x = x.contiguous()
    y = torch.empty_like(x)
    count = x.numel() // features
    stats = x.new_empty(statistics, count, dtype=torch.float32)
    w, b = as_vector(weight, features, 1.0), as_vector(bias, features, 0.0)
    kind, streaming = KINDS[x.dtype], streams(y, features)
    at = x.data_ptr(), y.data_ptr(), stats.data_ptr(), count, w.data_ptr(), b.data_ptr()

    def block(_: int, first: int, last: int) -> None:
        loop(kind, *at, first, last, features, eps, streaming)

    run(block, count, count_shares(count, features))
    return y, stats


def _differentiate(
    loop: Any,
    whole: Any,
    dy: Tensor,
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None,
    needs: Needs,
    features: int,
    eps: float,
    beside: Tensor | None = None,
) -> Gradients:
    """Gradients of :func:`_normalize`; `beside` is added to that of x, before it is rounded."""
    dy, x = dy.contiguous(), x.contiguous()
    w = as_vector(weight, features, 1.0)
    dx, dweight, dbias = torch.empty_like(x), torch.empty_like(w), torch.empty_like(w)
    count = x.numel() // features
    kind = KINDS[x.dtype]
    other = 0
    if beside is not None:
        beside = beside.contiguous()
        other = beside.data_ptr()
    at = dy.data_ptr(), x.data_ptr(), dx.data_ptr(), stats.data_ptr(), count, w.data_ptr(), other
    to = dweight.data_ptr(), dbias.data_ptr() if needs[2] else 0
    blocks = count_blocks(count, features)
    if blocks == 1:
        whole(kind, *at, *to, features, False)
    else:
        streaming = streams(dx, features)
        found = x.new_zeros(blocks, 3 * features, dtype=torch.float64)
        found_at = found.data_ptr()

        def block(i: int, first: int, last: int) -> None:
            s = found_at + 24 * features * i
            loop(kind, *at, s + 16 * features, s, first, last, features, streaming)

        run(block, count, blocks)
        sums.add_blocks(found.numpy(), features, *to)
    return dx, dweight if needs[1] else None, dbias if needs[2] else None


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
    count = x.numel() // features
    stats = x.new_empty((statistics, count), dtype=torch.float32)
    w, b = as_vector(weight, features, 1.0), as_vector(bias, features, 0.0)
    blocks = count_shares(count, features)
    scratch = x.new_empty((blocks, features), dtype=torch.float32)
    kind, streaming = KINDS[x.dtype], streams(y, features) and streams(total, features)
    at = *(t.data_ptr() for t in (x, residual, total, y, stats)), count, w.data_ptr(), b.data_ptr()
    scratch_at = scratch.data_ptr()

    def block(i: int, first: int, last: int) -> None:
        here = scratch_at + 4 * features * i
        loop(kind, *at, here, first, last, features, eps, streaming)

    run(block, count, blocks)
    return total, y, stats


layer_norm = functools.partial(_normalize, rows.layer_norm, 3)
rms_norm = functools.partial(_normalize, rows.rms_norm, 1)
layer_norm_backward = functools.partial(
    _differentiate, rows.layer_norm_backward, sums.layer_norm_backward
)
rms_norm_backward = functools.partial(
    _differentiate, rows.rms_norm_backward, sums.rms_norm_backward
)
add_layer_norm = functools.partial(_add, added.add_layer_norm, 3)
add_rms_norm = functools.partial(_add, added.add_rms_norm, 1)
