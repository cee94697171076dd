"""RMS norm as loops for numba, in the fewest lines: one dtype, one thread, no vectors by hand."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

# "reassoc" lets the compiler add in any order, and so in vectors; "contract" lets it fuse a * b + c
fast = njit(error_model="numpy", fastmath={"reassoc", "contract"})


@fast
def rms_norm(x, weight, eps, y, rrms):
    """Fill y of shape (rows, n) and rrms of shape (rows,)."""
    rows, n = x.shape
    for row in range(rows):
        squares = np.float32(0)
        for i in range(n):
            squares += x[row, i] * x[row, i]
        r = np.float32(1 / math.sqrt(squares / n + eps))
        rrms[row] = r
        for i in range(n):
            y[row, i] = x[row, i] * r * weight[i]


@fast
def rms_norm_backward(dy, x, weight, rrms, dx, dweight):
    """Fill dx of shape (rows, n) and add to dweight of shape (n,)."""
    rows, n = x.shape
    for row in range(rows):
        r, along = rrms[row], np.float32(0)
        for i in range(n):
            along += dy[row, i] * weight[i] * x[row, i]
        along *= r * r / np.float32(n)
        for i in range(n):
            dx[row, i] = (dy[row, i] * weight[i] - along * x[row, i]) * r
            dweight[i] += dy[row, i] * x[row, i] * r
