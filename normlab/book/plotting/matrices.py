"""Jacobians and projections as heat maps, and tables of shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

_INCIDENCE = np.array([0x00, 0x72, 0xB2]) / 255


def plot_matrix(
    ax: Axes,
    matrix: ArrayLike,
    *,
    title: str = "",
    limit: float | None = None,
    ylabel: str = "",
) -> Axes:
    """Draw a matrix as a heat map in which zero is white, whatever the entries.

    Colors run from -limit to limit, by default the largest magnitude. Give the same limit to panels
    that are compared.

    Raises:
        ValueError: not a matrix, entries that are not finite, or a `limit` that is not positive.
    """
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.size == 0 or not np.isfinite(table).all():
        raise ValueError(f"matrix: got shape {table.shape}; expected (rows, columns), all finite")
    if limit is None:
        limit = float(np.abs(table).max()) or 1.0
    if limit <= 0:
        raise ValueError(f"limit: got {limit}; expected a positive number")
    ax.imshow(table, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    ax.grid(False)
    for axis, size in ((ax.xaxis, table.shape[1]), (ax.yaxis, table.shape[0])):
        axis.set_ticks(range(0, size, max(1, size // 8)))
    if title:
        ax.set_title(title)
    ax.set(ylabel=ylabel)
    return ax


def plot_incidence(
    ax: Axes, shares: ArrayLike, *, rows: Sequence[str], columns: Sequence[str]
) -> Axes:
    """Draw a table of shares between 0 and 1; the darker a cell, the larger its share.

    Raises:
        ValueError: a share outside 0 and 1, or names that do not fit the table.
    """
    table = _named("shares", shares, rows, columns)
    if not ((table >= 0) & (table <= 1)).all():
        raise ValueError("shares: expected numbers between 0 and 1")
    ax.imshow(_shade(table), aspect="auto", interpolation="nearest")
    ax.xaxis.set_ticks(range(len(columns)), list(columns), rotation=90)
    ax.xaxis.tick_top()
    ax.yaxis.set_ticks(range(len(rows)), list(rows))
    # lines between the cells lead the eye from a name to its mark
    _part_cells(ax, table, color="#cccccc", linewidth=0.7)
    return ax


def plot_counts(
    ax: Axes, counts: ArrayLike, *, of: int, rows: Sequence[object], columns: Sequence[object]
) -> Axes:
    """Draw a map of counts, such as "4 of 5", in which more is darker; the first row is the lowest.

    Raises:
        ValueError: a count that is not possible, or names that do not fit the map.
    """
    table = _named("counts", counts, rows, columns)
    if not np.isin(table, range(of + 1)).all():
        raise ValueError(f"counts: expected whole numbers from 0 to {of}")
    cells = _shade(table / of)
    ax.imshow(cells, aspect="auto", origin="lower", interpolation="nearest")
    for (row, column), count in np.ndenumerate(table):
        color = "#ffffff" if count > 0.9 * of else "#111111"  # which is read better
        behind = {"facecolor": cells[row, column], "edgecolor": "none", "pad": 2.0}
        ax.text(column, row, f"{count} of {of}", color=color, bbox=behind, ha="center", va="center")
    ax.xaxis.set_ticks(range(len(columns)), list(map(str, columns)))
    ax.yaxis.set_ticks(range(len(rows)), list(map(str, rows)))
    _part_cells(ax, table, color="#ffffff", linewidth=2.0)
    return ax


def _named(
    argument: str, table: ArrayLike, rows: Sequence[object], columns: Sequence[object]
) -> np.ndarray:
    found = np.asarray(table)
    if found.shape != (len(rows), len(columns)) or found.size == 0:
        raise ValueError(
            f"{argument}: got shape {found.shape}; expected ({len(rows)}, {len(columns)}), one row "
            "and one column for each name"
        )
    return found


def _shade(shares: np.ndarray) -> np.ndarray:
    """Colors from white, for 0, to dark, for 1."""
    return np.asarray(1 - shares[..., None] * (1 - _INCIDENCE))


def _part_cells(ax: Axes, table: np.ndarray, *, color: str, linewidth: float) -> None:
    """Draw lines between the cells, in place of those through their centers."""
    ax.grid(False)
    ax.set_xticks(np.arange(table.shape[1] + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(table.shape[0] + 1) - 0.5, minor=True)
    ax.grid(True, which="minor", color=color, linewidth=linewidth)
    ax.set_axisbelow(False)
    ax.tick_params(which="both", length=0)
