"""How near to its limit a function runs: a roofline, and percents of a copy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from normlab.book.plotting.style import group_styles

_LIMIT = "#4d4d4d"


def plot_roofline(
    ax: Axes,
    bytes_per_second: float,
    operations_per_second: float,
    points: Mapping[str, tuple[float, float]],
) -> Axes:
    """Draw what a processor can do at most, and what some functions did; both axes are logarithmic.

    Args:
        ax: drawn on and returned.
        bytes_per_second: the slope of the roof, where memory is the limit.
        operations_per_second: its height, where arithmetic is.
        points: name -> (operations for each byte, operations a second).

    Raises:
        ValueError: a number that is not positive.
    """
    values = [bytes_per_second, operations_per_second, *np.ravel(list(points.values()))]
    if not points or not min(values) > 0:
        raise ValueError(f"points: got {dict(points)}; expected positive numbers, and one at least")
    ridge = operations_per_second / bytes_per_second
    left = min(x for x, _ in points.values()) / 3
    x = np.array([left, ridge, 10 * ridge])
    roof = np.minimum(x * bytes_per_second, operations_per_second)
    ax.plot(x, roof / 1e9, color=_LIMIT, linestyle="solid", label="the roof")
    for name, style in group_styles(points).items():
        at, rate = points[name]
        ax.plot(at, rate / 1e9, style["marker"], color=style["color"], markersize=9, label=name)
    ax.set(xscale="log", yscale="log")
    ax.set(xlabel="operations for each byte moved", ylabel="10⁹ operations a second")
    return ax


def plot_percents(ax: Axes, percents: Mapping[str, Mapping[str, float]]) -> Axes:
    """Draw a row for each case and a mark for each variant, at its percent of a copy's speed.

    Raises:
        ValueError: cases with different variants, or none.
    """
    names = [tuple(row) for row in percents.values()]
    if not names or len(set(names)) > 1 or not names[0]:
        raise ValueError(f"percents: got variants {names}; expected the same, and some, everywhere")
    at = np.arange(len(percents))[::-1]
    ax.axvline(100, color=_LIMIT, linestyle="solid", label="a copy")
    for name, style in group_styles(names[0]).items():
        values = [row[name] for row in percents.values()]
        ax.plot(values, at, style["marker"], color=style["color"], markersize=9, label=name)
    ax.set(yticks=at, yticklabels=list(percents), xlabel="percent of a copy's speed")
    ax.set(xlim=(0, max(112.0, *(v * 1.05 for row in percents.values() for v in row.values()))))
    ax.grid(True, axis="y", alpha=0.4)
    return ax


def plot_launches(
    ax: Axes,
    launched: Mapping[str, Mapping[str, float]],
    replayed: Mapping[str, Mapping[str, float]],
) -> Axes:
    """Draw a band of rows for each case, with two marks a variant: with its launches and without.

    Both tables lead from case to variant to percent of a copy's speed; marks are hollow where
    launches are included.

    Raises:
        ValueError: cases or variants that differ, or none.
    """
    names = [tuple(row) for table in (launched, replayed) for row in table.values()]
    if tuple(launched) != tuple(replayed) or not names or len(set(names)) > 1 or not names[0]:
        raise ValueError(
            f"launched, replayed: got cases {tuple(launched)} and {tuple(replayed)} with variants "
            f"{sorted(set(names))}; expected the same, and some, in both"
        )
    middle = np.arange(len(launched))[::-1]
    offsets = np.linspace(0.33, -0.33, len(names[0])) if len(names[0]) > 1 else np.zeros(1)
    ax.axvline(100, color=_LIMIT, linestyle="solid", label="a copy")
    for (name, style), offset in zip(group_styles(names[0]).items(), offsets, strict=True):
        at, color = middle + offset, style["color"]
        slow, fast = ([row[name] for row in table.values()] for table in (launched, replayed))
        ax.hlines(at, slow, fast, color=color, linewidth=1.5)
        ax.plot(fast, at, style["marker"], color=color, markersize=8, label=name)
        ax.plot(slow, at, style["marker"], color=color, markersize=8, markerfacecolor="white")
    ax.plot([], [], "o", color=_LIMIT, markersize=8, label="no launches")
    (hollow,) = ax.plot([], [], "o", color=_LIMIT, markersize=8, label="from Python")
    hollow.set_markerfacecolor("white")
    ax.set(yticks=middle, yticklabels=list(launched), xlabel="percent of a copy's speed")
    values = [v for table in (launched, replayed) for row in table.values() for v in row.values()]
    ax.set(xlim=(0, max(106.0, 1.05 * max(values))))
    for edge in middle[:-1] - 0.5:
        ax.axhline(edge, color="#bbbbbb", linewidth=0.8)
    ax.grid(False, axis="y")
    return ax
