"""Tables of yes and no, such as which check rejects which wrong layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

_COLOR = np.array([0x00, 0x72, 0xB2]) / 255


def plot_incidence(
    ax: Axes, shares: ArrayLike, *, rows: Sequence[str], columns: Sequence[str]
) -> Axes:
    """Draw a table of shares between 0 and 1; the darker a cell, the larger its share.

    Args:
        ax: drawn on and returned.
        shares: (rows, columns); a white cell is 0, a dark one 1.
        rows: their names, from the top.
        columns: their names, written upright above the table.

    Raises:
        ValueError: a share outside 0 and 1, or names that do not fit the table.
    """
    table = np.asarray(shares, dtype=np.float64)
    if table.shape != (len(rows), len(columns)) or table.size == 0:
        raise ValueError(
            f"shares: got shape {table.shape}; expected ({len(rows)}, {len(columns)}), one row and "
            "one column for each name"
        )
    if not ((table >= 0) & (table <= 1)).all():
        raise ValueError("shares: expected numbers between 0 and 1")
    ax.imshow(1 - table[..., None] * (1 - _COLOR), aspect="auto", interpolation="nearest")
    ax.xaxis.set_ticks(range(len(columns)), list(columns), rotation=90)
    ax.xaxis.tick_top()
    ax.yaxis.set_ticks(range(len(rows)), list(rows))
    ax.grid(False)
    # lines between the cells lead the eye from a name to its mark
    ax.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    ax.grid(True, which="minor", color="#cccccc", linewidth=0.7)
    ax.set_axisbelow(False)
    ax.tick_params(which="both", length=0)
    return ax
