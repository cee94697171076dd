"""Names beside lines and legends below panels, where they hide no data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation

END_SIZE = 11.0  # of the names beside lines, in points


def share_legend(axes: Sequence[Axes]) -> None:
    """Write the legend of the first of `axes` below all panels of their figure, and no other."""
    handles, labels = axes[0].get_legend_handles_labels()
    for ax in axes:
        if (legend := ax.get_legend()) is not None:
            legend.remove()
    figure = axes[0].get_figure(root=True)
    assert figure is not None  # axes on which something was drawn have a figure
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


class End(NamedTuple):
    """Where a line ends, in data units, and the name to write there."""

    y: float
    text: str
    color: str


def write_legend(ax: Axes) -> None:
    """Write the legend of `ax` below it, where it hides no data.

    Set the label of the x axis first: the legend goes under it.
    """
    handles, labels = ax.get_legend_handles_labels()
    if not handles:
        return
    figure = ax.get_figure(root=True)
    assert figure is not None  # axes on which something was drawn have a figure
    entry = 60.0 + 6.2 * max(len(label) for label in labels)  # points, at 11 points a letter
    columns = int(ax.get_window_extent().width * 72.0 / figure.dpi // entry)
    below = -42.0 if ax.get_xlabel() else -24.0  # points: tick labels, then the axis label
    ax.legend(
        handles,
        labels,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=ax.transAxes + ScaledTranslation(0.0, below / 72.0, figure.dpi_scale_trans),
        ncols=min(max(columns, 1), len(handles)),
        borderaxespad=0.0,
        columnspacing=1.2,
    )


def write_ends(ax: Axes, ends: list[End]) -> None:
    """Write names right of the panel at the heights where lines end, moved apart if need be.

    Set limits and scale of `ax` first: the places are computed from them.
    """
    if not ends:
        return
    figure = ax.get_figure(root=True)
    assert figure is not None  # axes on which something was drawn have a figure
    ax.autoscale_view()
    pixels = [float(ax.transData.transform((1.0, end.y))[1]) for end in ends]
    heights = [pixel * 72.0 / figure.dpi for pixel in pixels]  # points
    places = _spread_apart(heights, 1.2 * END_SIZE)
    for end, own, place in zip(ends, heights, places, strict=True):
        ax.annotate(
            end.text,
            (1.0, end.y),
            xycoords=("axes fraction", "data"),
            xytext=(5.0, place - own),
            textcoords="offset points",
            color=end.color,
            fontsize=END_SIZE,
            fontweight="bold",
            va="center",
        )


def _spread_apart(heights: list[float], gap: float) -> list[float]:
    """Move heights as little as needed (least squares) until they lie `gap` apart."""
    order = np.argsort(heights, kind="stable")
    blocks: list[list[float]] = []  # [mean, count] of heights less their share of gaps
    for rank, i in enumerate(order):
        blocks.append([heights[i] - rank * gap, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, count = blocks.pop()
            before = blocks[-1]
            before[0] = (before[0] * before[1] + mean * count) / (before[1] + count)
            before[1] += count
    levels = [mean for mean, count in blocks for _ in range(int(count))]
    placed = [0.0] * len(heights)
    for rank, i in enumerate(order):
        placed[i] = levels[rank] + rank * gap
    return placed
