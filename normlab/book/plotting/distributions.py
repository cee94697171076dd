"""Distributions of activations: percentiles over training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from normlab.book.plotting.labels import End, write_ends, write_legend
from normlab.book.plotting.style import group_styles


def plot_percentiles_over_steps(
    ax: Axes,
    steps: ArrayLike,
    percentiles: Mapping[float, ArrayLike] | Mapping[int, ArrayLike],
    *,
    name: str = "none",
    ylabel: str = "activation",
) -> Axes:
    """Draw percentiles of a quantity over training: lines, with the range between them shaded.

    Args:
        ax: drawn on and returned; call once per norm to compare several.
        steps: (points,).
        percentiles: percentile -> (points,), for example `{15: low, 50: middle, 85: high}`.
        name: the norm, or a group's name, that sets color and line style.

    Raises:
        ValueError: no percentile, one outside 0 to 100, or points that do not fit `steps`.
    """
    x = np.asarray(steps, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or not percentiles:
        raise ValueError(
            f"steps, percentiles: got shape {x.shape} and {len(percentiles)} percentiles; "
            "expected (points,) and at least one"
        )
    rows: dict[float, np.ndarray] = {}
    for q, values in sorted(percentiles.items()):
        rows[q] = np.asarray(values, dtype=np.float64)
        if not 0 <= q <= 100 or rows[q].shape != x.shape:
            raise ValueError(
                f"percentiles: {q!r} with shape {rows[q].shape}; expected a number from 0 to 100 "
                f"with shape {x.shape}"
            )
    style = group_styles([name])[name]
    ranks = list(rows)
    middle = min(ranks, key=lambda q: abs(q - 50))
    if len(ranks) > 1:
        ax.fill_between(x, rows[ranks[0]], rows[ranks[-1]], color=style["color"], alpha=0.15, lw=0)
    for q in ranks:
        ax.plot(
            x,
            rows[q],
            color=style["color"],
            linestyle=style["linestyle"],
            lw=2.2 if q == middle else 1.1,
            label=style["label"] if q == middle else None,
        )
    ends = [End(float(row[-1]), f"{q:g}%", style["color"]) for q, row in rows.items()]
    write_ends(ax, ends, size=10.0, weight="normal")
    ax.set(xlabel="step", ylabel=ylabel)
    write_legend(ax)
    return ax
