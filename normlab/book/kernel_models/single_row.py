"""LayerNorm's CPU kernel for one row, in plain loops: what it does in which order, and no more.

The other models add what the machine does to it: float32, lanes, fused instructions, chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def forward_row(
    x: Sequence[float], weight: Sequence[float], bias: Sequence[float], eps: float
) -> tuple[list[float], float, float]:
    """Normalize one row in two passes, in float64; gives y, mean and rstd.

    Raises:
        ValueError: the arguments differ in length.

    Source:
        torch 2.13.0, `RowwiseMoments` and `LayerNormSecondPass`; the recurrence is
        welford1962note.

    Example:
        >>> forward_row([1.0, 3.0], [1.0, 1.0], [0.0, 0.0], 0.0)
        ([-1.0, 1.0], 2.0, 1.0)
    """
    mean = squares = 0.0
    for count, value in enumerate(x, start=1):  # first pass: Welford's recurrence
        difference = value - mean  # from the mean so far
        mean += difference / count
        squares += difference * (value - mean)  # times the distance from the new mean
    rstd = 1 / math.sqrt(squares / len(x) + eps)
    # second pass: normalize, scale and shift in one sweep
    y = [(value - mean) * rstd * w + b for value, w, b in zip(x, weight, bias, strict=True)]
    return y, mean, rstd


def backward_row(
    dy: Sequence[float],
    x: Sequence[float],
    weight: Sequence[float],
    mean: float,
    rstd: float,
    dweight: list[float],
    dbias: list[float],
    store: Callable[[float], float] = float,
) -> list[float]:
    """Give dx of one row, and add the row's share to dweight and dbias in place.

    `store` is what memory makes of a sum: torch keeps the sums in the dtype of x.

    Source:
        torch 2.13.0, `layer_norm_backward_frame`.
    """
    n = len(x)
    ds = db = 0.0
    for j in range(n):  # two sums
        ds += dy[j] * weight[j] * x[j]
        db += dy[j] * weight[j]
    a = rstd  # three numbers for the row
    b = (db * mean - ds) * rstd**3 / n
    c = -b * mean - db * rstd / n
    dx = [a * dy[j] * weight[j] + b * x[j] + c for j in range(n)]  # one sweep
    for j in range(n):  # the row's share of what all rows have in common
        dweight[j] = store(dweight[j] + dy[j] * (rstd * x[j] - rstd * mean))
        dbias[j] = store(dbias[j] + dy[j])
    return dx
