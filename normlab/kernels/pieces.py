"""How a tensor is cut into pieces that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
Needs = tuple[bool, bool, bool]

CHUNK = 1 << 18  # elements: 1 MB in float32, the second-level cache of a core


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, otherwise float32: what statistics are computed in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def pieces(count: int, size: int) -> Iterator[slice]:
    """Slices of `count` items of `size` elements each; the last may be shorter."""
    step = max(1, CHUNK // max(1, size))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))
