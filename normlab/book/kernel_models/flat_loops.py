"""LayerNorm as loops over flat memory: what a kernel does, in an order that one can follow."""

from __future__ import annotations

import math
from collections.abc import Sequence

Row = Sequence[float]


def layer_norm_loops(
    x: Row, weight: Row, bias: Row, eps: float = 1e-5
) -> tuple[list[float], list[float], list[float]]:
    """LayerNorm of rows of C = len(weight) numbers that lie one behind the other.

    Returns:
        y, rows · C numbers, and mean and rstd, one number for each row.

    Raises:
        ValueError: the length of `x` is no multiple of C.

    Example:
        >>> layer_norm_loops([1.0, 3.0], [1.0, 1.0], [0.0, 0.0], eps=0.0)
        ([-1.0, 1.0], [2.0], [1.0])
    """
    size = len(weight)
    if not size or len(x) % size:
        raise ValueError(f"x: got {len(x)} numbers; expected a multiple of {size}, as weight has")
    y, mean, rstd = [0.0] * len(x), [], []
    for start in range(0, len(x), size):
        row = x[start : start + size]
        mean.append(sum(row) / size)
        rstd.append(1 / math.sqrt(sum((v - mean[-1]) ** 2 for v in row) / size + eps))
        for i in range(size):
            y[start + i] = (row[i] - mean[-1]) * rstd[-1] * weight[i] + bias[i]
    return y, mean, rstd


def layer_norm_backward_loops(
    dy: Row, x: Row, weight: Row, mean: Row, rstd: Row
) -> tuple[list[float], list[float], list[float]]:
    """The gradients, from what :func:`layer_norm_loops` was given and gave.

    Returns:
        dx, rows · C numbers, and dweight and dbias, C numbers each.
    """
    size = len(weight)
    dx, dweight, dbias = [0.0] * len(x), [0.0] * size, [0.0] * size
    for row in range(len(mean)):
        start = row * size  # where this row begins in memory
        mean_g = mean_g_x_hat = 0.0
        for i in range(start, start + size):  # two reductions
            g = weight[i - start] * dy[i]
            mean_g += g / size
            mean_g_x_hat += g * (x[i] - mean[row]) * rstd[row] / size
        for i in range(start, start + size):  # one sweep
            x_hat = (x[i] - mean[row]) * rstd[row]  # computed again, not kept
            g = weight[i - start] * dy[i]
            dx[i] = rstd[row] * (g - mean_g - x_hat * mean_g_x_hat)
            dweight[i - start] += dy[i] * x_hat  # summed over the rows
            dbias[i - start] += dy[i]
    return dx, dweight, dbias
