"""Dots that are runs, batches or samples: a row a group, clouds, and what a layer moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter
from numpy.typing import ArrayLike

from normlab.book.plotting.labels import write_legend
from normlab.book.plotting.style import group_styles

BEFORE = -0.6  # height of the outputs before the move, below the outputs at 0


def plot_rows(
    ax: Axes,
    groups: Mapping[str, ArrayLike],
    *,
    log_x: bool = False,
    ticks: Sequence[float] | None = None,
    xlabel: str = "",
    styles: Mapping[str, Mapping[str, object]] | None = None,
) -> Axes:
    """Draw a row for each group, first on top: a marker for each seed, a bar at their median.

    A group is an array (seeds,). `ticks` of the x axis are written as plain numbers.

    Raises:
        ValueError: no group, or one without values, with values that are not finite, or that a
            logarithmic axis cannot show.
    """
    rows = {name: np.asarray(values, dtype=np.float64) for name, values in groups.items()}
    if not rows:
        raise ValueError("groups: got none; expected at least one")
    for name, values in rows.items():
        if values.ndim != 1 or not values.size or not np.isfinite(values).all():
            raise ValueError(f"groups: {name!r} has {values}; expected finite numbers, one a seed")
        if log_x and values.min() <= 0:
            raise ValueError(f"groups: {name!r} has {values.min()}; a logarithmic axis starts at 0")
    look = group_styles(rows, styles)
    if log_x:
        ax.set_xscale("log")
    for row, (name, values) in enumerate(rows.items()):
        color = look[name]["color"]
        middle = float(np.median(values))
        ax.plot([middle, middle], [row - 0.3, row + 0.3], color=color, lw=3.0)
        places = np.full(values.size, float(row))
        ax.plot(values, places, look[name]["marker"], color=color, ms=8, alpha=0.75, mec="white")
    ax.set_yticks(range(len(rows)), [look[name]["label"] for name in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    if ticks is not None:
        ax.set_xticks(ticks)
        ax.xaxis.set_major_formatter(ScalarFormatter())
        ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(xlabel)
    return ax


def plot_clouds(
    ax: Axes,
    clouds: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    target: tuple[float, float] | None = None,
    xlabel: str = "",
    ylabel: str = "",
) -> Axes:
    """Draw clouds of points over each other, in the given order, and a cross at the target.

    A cloud is x and y of its points, (points,) each; the target is where all would lie without
    noise.

    Raises:
        ValueError: no cloud, or x and y that do not fit each other.
    """
    if not clouds:
        raise ValueError("clouds: got none; expected at least one")
    look = group_styles(clouds)
    for name, (x, y) in clouds.items():
        if np.ndim(x) != 1 or np.shape(x) != np.shape(y):
            raise ValueError(
                f"clouds: {name!r} has shapes {np.shape(x)} and {np.shape(y)}; expected (points,)"
            )
        style = look[name]
        marker, color = style["marker"], style["color"]
        ax.plot(x, y, marker, color=color, ms=6, mec="white", mew=0.5, label=style["label"])
    if target is not None:
        ax.plot(*target, "+", color="#111111", ms=18, mew=2.5, zorder=4)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    write_legend(ax)
    return ax


def plot_moved(
    ax: Axes,
    before: tuple[ArrayLike, ArrayLike],
    after: tuple[ArrayLike, ArrayLike],
    *,
    color: str,
) -> Axes:
    """Draw values above what a layer makes of them, and below, as rings, what it made before.

    A line joins each output to the one before, so it is upright where nothing moved. A ring among
    the inputs is where a moved one was.

    `before` and `after` are inputs and outputs of the layer, (samples,) each.

    Raises:
        ValueError: the four do not have one shape (samples,).
    """
    rows = np.stack([np.asarray(row, dtype=np.float64) for row in (*before, *after)])
    if rows.ndim != 2:
        raise ValueError(f"before: got shape {rows.shape[1:]}; expected (samples,)")
    x_before, y_before, x, y = rows
    ax.plot(np.stack([x, y]), [1, 0], color=color, lw=1.2, alpha=0.6)
    ax.plot(np.stack([y, y_before]), [0, BEFORE], color="#555555", lw=1)
    for row, rings in ((1, x_before[~np.isclose(x_before, x)]), (BEFORE, y_before)):
        at = np.full_like(rings, row)
        ax.plot(rings, at, "o", ms=7, mfc="white", mec="#555555", mew=1)
    for row, now in ((1, x), (0, y)):
        ax.plot(now, np.full_like(now, row), "o", ms=9, color=color, mec="white")
    ax.set_yticks([BEFORE, 0, 1], ["outputs\nbefore", "outputs", "inputs"])
    ax.set_ylim(BEFORE - 0.25, 1.25)
    ax.grid(visible=False, axis="y")
    return ax
