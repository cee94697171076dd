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


def fine_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for 16-bit input, else float64: what rounds an output once, when it is written."""
    return torch.float64 if dtype in (torch.float32, torch.float64) else torch.float32


def pieces(count: int, size: int, dtype: torch.dtype = torch.float32) -> Iterator[slice]:
    """Slices of `count` items of `size` elements each, a megabyte long; the last may be shorter."""
    step = max(1, 4 * CHUNK // dtype.itemsize // max(1, size))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))
