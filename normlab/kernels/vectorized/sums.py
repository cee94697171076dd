"""Norms of the sum of two tensors, in one pass over both; their backward is that of the norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normlab.kernels.vectorized import added
from normlab.kernels.vectorized.blocks import KINDS, as_vector, count_blocks, run, streams


def add_layer_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    features: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum, its layer norm, and rows of mean, missed, rstd."""
    return _add(added.add_layer_norm, 3, x, residual, weight, bias, features, eps)


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    bias: None,
    features: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum, its RMS norm, and rstd."""
    return _add(added.add_rms_norm, 1, x, residual, weight, bias, features, eps)


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
    x, residual = x.contiguous(), residual.contiguous()
    total, y = torch.empty_like(x), torch.empty_like(x)
    rows = x.numel() // features
    stats = x.new_empty((statistics, rows), dtype=torch.float32)
    w, b = as_vector(weight, features, 1.0), as_vector(bias, features, 0.0)
    blocks = count_blocks(rows, features)
    scratch = x.new_empty((blocks, 2, features), dtype=torch.float32)  # two rows for each block
    kind, streaming = KINDS[x.dtype], streams(y, features) and streams(total, features)
    at = *(t.data_ptr() for t in (x, residual, total, y, stats)), rows, w.data_ptr(), b.data_ptr()
    scratch_at = scratch.data_ptr()

    def block(i: int, first: int, last: int) -> None:
        here = scratch_at + 8 * features * i
        loop(kind, *at, here, first, last, features, eps, streaming)

    run(block, rows, blocks)
    return total, y, stats
