"""How a batch is divided among devices, and which cells one statistic needs."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

_FILLS = ("#cfe3f2", "#fde3c8", "#d9ecd6", "#ead9ea")
_INSIDE, _CROSSES = "#222222", "#b2182b"


def plot_division(ax: Axes, owners: ArrayLike, statistic: ArrayLike) -> Axes:
    """Draw which device holds each cell, and frame the cells that share one statistic.

    `owners` has the number of the device of each cell, which stands in it, and `statistic` is true
    in a rectangle of cells; both are (rows, columns). The frame is black where one device holds all
    of its cells, and red and dashed where several do.

    Raises:
        ValueError: no matrices of one shape, or a statistic that is no rectangle.
    """
    table, chosen = np.asarray(owners), np.asarray(statistic, dtype=bool)
    if table.ndim != 2 or chosen.shape != table.shape:
        raise ValueError(
            f"statistic: got shape {chosen.shape} for owners {table.shape}; expected one shape"
        )
    rows, columns = np.nonzero(chosen.any(1))[0], np.nonzero(chosen.any(0))[0]
    if not chosen.any() or not chosen[np.ix_(rows, columns)].all():
        raise ValueError("statistic: got cells that are no rectangle; expected one rectangle")
    for (row, column), device in np.ndenumerate(table):
        fill = _FILLS[int(device) % len(_FILLS)]
        ax.add_patch(Rectangle((column, row), 1, 1, facecolor=fill, edgecolor="white", lw=1.5))
        ax.text(column + 0.5, row + 0.5, str(device), ha="center", va="center", color="#555555")
    crosses = len(np.unique(table[chosen])) > 1
    color, line = (_CROSSES, (0, (3.0, 1.5))) if crosses else (_INSIDE, "solid")
    size = columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1
    frame = Rectangle((columns[0], rows[0]), *size, facecolor="none", lw=2.5, zorder=3)
    frame.set(edgecolor=color, linestyle=line)
    ax.add_patch(frame)
    height, width = table.shape
    ax.set(xlim=(-0.1, width + 0.1), ylim=(height + 0.1, -0.1), aspect="equal")
    ax.set(xticks=[], yticks=[])
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return ax
