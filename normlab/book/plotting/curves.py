"""Curves and sweeps over several seeds: the center, and how far the seeds lie apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from normlab.book.plotting.labels import End, write_ends, write_legend
from normlab.book.plotting.style import GroupStyle, group_styles

Center = Literal["median", "mean"]
Spread = Literal["band", "lines", "none"]
SweepSpread = Literal[Spread, "bars"]
Labels = Literal["direct", "legend", "none"]
Styles = Mapping[str, Mapping[str, object]]


def plot_curves(
    ax: Axes,
    x: ArrayLike,
    groups: Mapping[str, ArrayLike],
    *,
    center: Center = "median",
    spread: Spread = "band",
    labels: Labels = "direct",
    log_x: bool = False,
    log_y: bool = False,
    xlabel: str = "step",
    ylabel: str = "",
    styles: Styles | None = None,
) -> Axes:
    """Draw one line per group, its center, and the spread of its seeds.

    A "band" reaches from the lowest to the highest seed; thin "lines" are one per seed.

    A diverged run is a value that is not finite. Center and band are those of the finite seeds as
    long as more than half are finite; from there on the line stops at a cross. On a logarithmic y
    axis, values that are not positive are left out.

    Args:
        ax: drawn on and returned. Set its limits before the call, so that "direct" labels, at the
            right ends of the lines, find their places.
        x: (points,).
        groups: name -> (seeds, points), or (points,) for one run.

    Raises:
        ValueError: no group, or a group whose points do not fit `x`.
    """
    points, runs = _validate(x, groups)
    _set_scales(ax, log_x, log_y, xlabel, ylabel)
    look = group_styles(runs, styles)
    ends: list[End] = []
    stopped = False
    for group, values in runs.items():
        style = look[group]
        color, label = style["color"], style["label"]
        middle, low, high = _summarize(values, center, positive=log_y)
        _draw_spread(ax, points, values, low, high, spread, style)
        ax.plot(points, middle, color=color, linestyle=style["linestyle"], label=label, zorder=3)
        alive = np.flatnonzero(np.isfinite(middle))
        if alive.size:
            last = alive[-1]
            stops = not np.isfinite(values[:, last + 1 :]).all()
            if stops:
                ax.plot(points[last], middle[last], "x", color=color, ms=9, mew=2.5, zorder=4)
                stopped = True
            ends.append(End(float(middle[last]), f"{label} ×" if stops else label, color))
    if stopped:
        ax.plot([], [], "x", color="#111111", ms=9, mew=2.5, label="most seeds diverged")
    _write_labels(ax, ends, labels)
    return ax


def plot_sweep(
    ax: Axes,
    x: ArrayLike,
    groups: Mapping[str, ArrayLike],
    *,
    center: Center = "median",
    spread: SweepSpread = "band",
    labels: Labels = "legend",
    log_x: bool = True,
    log_y: bool = False,
    xlabel: str = "learning rate",
    ylabel: str = "",
    styles: Styles | None = None,
    failed: str = "diverged",
) -> Axes:
    """Draw the result of a sweep: a marker per setting and group, with the spread of the seeds.

    A failed run is a value that is not finite. A setting where at least half of the seeds failed
    has no marker on the line; wherever any seed failed, a cross in the group's color stands below
    the top edge, one row per group that has any. On a logarithmic y axis, values that are not
    positive are left out.

    Args:
        ax: drawn on and returned.
        x: (points,), the settings: learning rates, batch sizes, depths.
        groups: name -> (seeds, points), or (points,) for one run.
        spread: as in :func:`plot_curves`, or "bars": a thin bar from the lowest to the highest
            seed, and the groups of a setting side by side, where bands would hide each other;
            the axis then has its ticks at the settings.
        failed: what a run did whose value is not finite, for the key.

    Raises:
        ValueError: no group, or a group whose points do not fit `x`.
    """
    points, runs = _validate(x, groups)
    _set_scales(ax, log_x, log_y, xlabel, ylabel)
    look = group_styles(runs, styles)
    if spread == "bars":
        ax.set_xticks(points, [f"{point:g}" for point in points])
        ax.set_xticks([], minor=True)
        _draw_columns(ax, points, log_x)
    ends: list[End] = []
    rows = 0  # of crosses
    for i, (group, values) in enumerate(runs.items()):
        style = look[group]
        middle, low, high = _summarize(values, center, positive=log_y)
        places = points
        if spread == "bars":
            places = _beside(points, i, len(runs), log_x)
            ax.vlines(places, low, high, color=style["color"], lw=1.4, zorder=2)
        else:
            _draw_spread(ax, points, values, low, high, spread, style)
        ax.plot(places, middle, **style, zorder=3)
        alive = np.flatnonzero(np.isfinite(middle))
        if alive.size:
            ends.append(End(float(middle[alive[-1]]), style["label"], style["color"]))
        missing = ~np.isfinite(values).all(axis=0)
        if missing.any():
            heights, across = np.full(missing.sum(), 0.97 - 0.055 * rows), ax.get_xaxis_transform()
            ax.plot(places[missing], heights, "x", color=style["color"], mew=2.0, transform=across)
            rows += 1
    if rows:
        ax.plot([], [], "x", color="#111111", markeredgewidth=2.0, label=f"a seed {failed}")
        ax.margins(y=0.05 + 0.07 * rows)  # room for the crosses above the data
        if labels == "direct":
            ax.annotate(
                f"× a seed\n{failed}",
                (1.0, 0.95),
                xycoords="axes fraction",
                xytext=(5.0, 0.0),
                textcoords="offset points",
                fontsize=10,
            )
    _write_labels(ax, ends, labels)
    return ax


def _validate(
    x: ArrayLike, groups: Mapping[str, ArrayLike]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    points = np.asarray(x, dtype=np.float64)
    if points.ndim != 1 or points.size == 0:
        raise ValueError(f"x: got shape {points.shape}; expected (points,), at least one")
    if not groups:
        raise ValueError("groups: got none; expected at least one")
    runs: dict[str, np.ndarray] = {}
    for group, values in groups.items():
        table = np.atleast_2d(np.asarray(values, dtype=np.float64))
        if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] != points.size:
            raise ValueError(
                f"groups: {group!r} has shape {np.shape(values)}; expected (seeds, {points.size}), "
                "one value per seed and point of x"
            )
        runs[group] = table
    return points, runs


def _summarize(
    values: np.ndarray, center: Center, *, positive: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Center, lowest and highest finite seed at each point; NaN where there is none."""
    usable = np.isfinite(values)
    if positive:
        usable &= values > 0
    if center not in ("median", "mean"):
        raise ValueError(f"center: got {center!r}; expected 'median' or 'mean'")
    middle, low, high = np.full((3, values.shape[1]), np.nan)
    for i, column in enumerate(values.T):
        seeds = column[usable[:, i]]
        if seeds.size == 0:
            continue
        low[i], high[i] = seeds.min(), seeds.max()
        if 2 * seeds.size > column.size:
            middle[i] = np.median(seeds) if center == "median" else seeds.mean()
    return middle, low, high


def _set_scales(ax: Axes, log_x: bool, log_y: bool, xlabel: str, ylabel: str) -> None:
    if log_x:
        ax.set_xscale("log")
    if log_y:
        ax.set_yscale("log")
    ax.set(xlabel=xlabel, ylabel=ylabel)


def _beside(points: np.ndarray, i: int, groups: int, log_x: bool) -> np.ndarray:
    """Where group `i` stands, so that all of them share 0.4 of the narrowest gap of the points."""
    line = np.log(points) if log_x else points
    gap = np.diff(np.sort(line)).min() if points.size > 1 else 1.0
    moved = line + 0.4 * gap * ((i + 0.5) / groups - 0.5)
    return np.asarray(np.exp(moved) if log_x else moved)


def _draw_columns(ax: Axes, points: np.ndarray, log_x: bool) -> None:
    """Shade every other setting: what stands beside its tick belongs to it."""
    line = np.sort(np.log(points) if log_x else points)
    inner = (line[1:] + line[:-1]) / 2
    first, last = (inner[0], inner[-1]) if inner.size else (line[0] - 0.5, line[0] + 0.5)
    edges = np.array([2 * line[0] - first, *inner, 2 * line[-1] - last])
    edges = np.exp(edges) if log_x else edges
    for left, right in zip(edges[:-1:2], edges[1::2], strict=False):
        ax.axvspan(left, right, color="#f0f0f0", linewidth=0, zorder=0)
    ax.set_xlim(edges[0], edges[-1])
    ax.grid(False, axis="x")


def _draw_spread(
    ax: Axes,
    points: np.ndarray,
    values: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    spread: Spread,
    style: GroupStyle,
) -> None:
    if spread not in ("band", "lines", "none"):
        raise ValueError(f"spread: got {spread!r}; expected 'band', 'lines' or 'none'")
    if spread == "none" or values.shape[0] == 1:
        return
    if spread == "band":
        ax.fill_between(points, low, high, color=style["color"], alpha=0.18, lw=0, zorder=1)
        return
    for seed in values:
        shown = np.where(np.isfinite(seed), seed, np.nan)
        ax.plot(points, shown, color=style["color"], lw=0.8, alpha=0.55, zorder=2)


def _write_labels(ax: Axes, ends: list[End], labels: Labels) -> None:
    if labels not in ("direct", "legend", "none"):
        raise ValueError(f"labels: got {labels!r}; expected 'direct', 'legend' or 'none'")
    if labels == "legend":
        write_legend(ax)
    if labels == "direct":
        write_ends(ax, ends)
