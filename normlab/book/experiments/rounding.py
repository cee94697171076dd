"""Numbers as a record or a page holds them."""

from __future__ import annotations

import math


def rounded(value: float, digits: int = 4) -> float:
    """Keep so many significant digits: enough for a curve, and the file stays small.

    Example:
        >>> rounded(0.0012345678), rounded(123456.0)
        (0.001235, 123500.0)
    """
    return float(f"{value:.{digits}g}")


def power_above(error: float, least: float = 1e-12) -> float:
    """Round an error up to a power of ten, at least `least`, so that every machine prints one."""
    return max(least, 10.0 ** math.ceil(math.log10(error))) if error > 0 else least


def window_means(values: list[float], window: int) -> list[float]:
    """Means of consecutive windows, four digits each; an incomplete last one is left out.

    Example:
        >>> window_means([1.0, 3.0, 5.0, 7.0, 9.0], 2)
        [2.0, 6.0]
    """
    whole = len(values) - len(values) % window
    return [rounded(sum(values[i : i + window]) / window) for i in range(0, whole, window)]
