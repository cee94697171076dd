"""Rows in fixed blocks over the threads of torch, and what kernels are told about a tensor."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import torch
from torch import Tensor

KINDS = {torch.float32: np.float32(0), torch.bfloat16: np.uint16(0), torch.float16: np.int16(0)}
STREAMED = 1 << 22  # bytes from which on a result leaves the cache before anybody reads it
BLOCKS = 16  # at most; the sums of a block are added in order, so that threads change no bit
SMALLEST = 1 << 17  # elements of a block: a fraction of a millisecond

_pool: ThreadPoolExecutor | None = None


def _forget() -> None:
    global _pool
    _pool = None  # a forked process has no threads of its parent


os.register_at_fork(after_in_child=_forget)


def count_blocks(rows: int, size: int) -> int:
    """How many blocks `rows` of `size` elements make: by their shape, not by the threads."""
    wanted = rows * size // SMALLEST
    return 1 if wanted <= 1 else min(BLOCKS, rows, wanted)


def count_shares(rows: int, size: int) -> int:
    """As many blocks as there are threads, where each row has a result of its own."""
    blocks = count_blocks(rows, size)
    return 1 if blocks == 1 else min(torch.get_num_threads(), blocks)


def run(block: Callable[[int, int, int], Any], rows: int, blocks: int) -> None:
    """Call block(number, first row, last row) for all blocks, on as many threads as torch has."""
    if blocks == 1:
        block(0, 0, rows)
        return
    threads = min(torch.get_num_threads(), blocks)
    edges = [rows * i // blocks for i in range(blocks + 1)]
    if threads == 1:
        for i in range(blocks):
            block(i, edges[i], edges[i + 1])
        return
    global _pool
    if _pool is None or _pool._max_workers < threads - 1:
        _pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="normlab")

    # one task for each thread, of which this one is the first, so that no more run than torch has
    def share(start: int) -> None:
        for i in range(start, blocks, threads):
            block(i, edges[i], edges[i + 1])

    others = [_pool.submit(share, start) for start in range(1, threads)]
    try:
        share(0)
    finally:  # they write to memory that this call holds
        wait(others)
    for other in others:
        other.result()


def streams(result: Tensor, size: int) -> bool:
    """Whether rows of `size` elements of a result are written past the cache."""
    return (
        result.untyped_storage().nbytes() >= STREAMED
        and size * result.element_size() % 64 == 0
        and result.data_ptr() % 64 == 0
    )


@functools.lru_cache(maxsize=64)
def constant(size: int, value: float) -> Tensor:
    """Stands for a missing weight or bias; never written."""
    return torch.full((size,), value, dtype=torch.float32, device="cpu")


def as_vector(parameter: Tensor | None, size: int, missing: float) -> Tensor:
    """A parameter in contiguous float32."""
    if parameter is None:
        return constant(size, missing)
    if parameter.dtype is not torch.float32:
        parameter = parameter.float()
    return parameter.contiguous()
