"""Draws which function calls which, from the top down, with the file that each stands in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

_STEP = 1.0
_HEIGHT = 0.72
_EDGE = "#444444"


def plot_call_path(
    ax: Axes, steps: Sequence[tuple[str, str, str]], colors: Mapping[str, str]
) -> Axes:
    """Draw a column of boxes, one per call, joined by arrows.

    A step is (function, where it stands, kind), outermost first. The colors fill the boxes by kind;
    they differ in lightness too, for print.

    Raises:
        ValueError: there is no step, or a kind without color.
    """
    if not steps:
        raise ValueError("steps: got none; expected at least one call")
    if unknown := {kind for _, _, kind in steps} - set(colors):
        raise ValueError(f"colors: none for {', '.join(sorted(unknown))}")
    for i, (function, place, kind) in enumerate(steps):
        y = -i * _STEP
        box = FancyBboxPatch(
            (0, y - _HEIGHT / 2),
            1,
            _HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.03",
            mutation_aspect=5,
            facecolor=colors[kind],
            edgecolor=_EDGE,
            linewidth=0.8,
            gid=kind,
        )
        ax.add_patch(box)
        ax.text(0.5, y + 0.15, function, ha="center", va="center", fontsize=11, fontweight="bold")
        ax.text(0.5, y - 0.19, place, ha="center", va="center", fontsize=10, color="#333333")
        if i:
            arrow = {"arrowstyle": "-|>", "color": _EDGE, "shrinkA": 0, "shrinkB": 0}
            top = y + _HEIGHT / 2
            ax.annotate("", (0.5, top), (0.5, top + _STEP - _HEIGHT), arrowprops=arrow, gid="arrow")
    ax.set(xlim=(-0.01, 1.01), ylim=(-(len(steps) - 1) * _STEP - 0.45, 0.45))
    ax.axis("off")
    return ax
