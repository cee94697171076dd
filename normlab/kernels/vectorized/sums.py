"""Gradients of the weight and bias of rows: summed in float64 by blocks of rows, and rounded once.

A block has `3 n` zeros in float64: the sums for the weight, those for the bias, and in the place of
n more both in float32 over the last few rows.
"""

from __future__ import annotations

import numpy as np

from normlab.kernels.vectorized import rows as loops
from normlab.kernels.vectorized.compiling import compiled, inlined
from normlab.kernels.vectorized.vectors import write


@inlined
def round_sums(sums, n, dweight, dbias):
    for i in range(n):
        weight = 0.0
        bias = 0.0
        for block in range(len(sums)):  # in order, so that threads change no bit
            weight += sums[block, i]
            bias += sums[block, n + i]
        write(dweight, i, np.float32(weight))
        if dbias:
            write(dbias, i, np.float32(bias))


@compiled
def add_blocks(sums, n, dweight, dbias):
    round_sums(sums, n, dweight, dbias)


# One block: what is summed is made, used and forgotten in one call, as a tiny input needs it.


@compiled
def layer_norm_backward(kind, dy, x, dx, stats, rows, w, beside, dweight, dbias, n, streaming):
    sums = np.zeros((1, 3 * n))
    at = np.int64(sums.ctypes.data)
    loops.layer_norm_backward(
        kind, dy, x, dx, stats, rows, w, beside, at + 16 * n, at, 0, rows, n, streaming
    )
    round_sums(sums, n, dweight, dbias)


@compiled
def rms_norm_backward(kind, dy, x, dx, stats, rows, w, beside, dweight, dbias, n, streaming):
    sums = np.zeros((1, 3 * n))
    at = np.int64(sums.ctypes.data)
    loops.rms_norm_backward(
        kind, dy, x, dx, stats, rows, w, beside, at + 16 * n, at, 0, rows, n, streaming
    )
    round_sums(sums, n, dweight, dbias)
