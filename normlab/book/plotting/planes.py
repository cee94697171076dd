"""The gradient of layer norm for three features, in the plane of sum zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from numpy.typing import ArrayLike

from normlab.book.plotting.style import NORM_COLORS

# Rows: the directions of the three features in the plane, the first one upward.
_PLANE = np.sqrt(2 / 3) * np.array(
    [[np.cos(angle), np.sin(angle)] for angle in np.radians([90.0, 210.0, 330.0])]
)
_ARROW: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1.0, "zorder": 3}


def plot_plane(ax: Axes, x_hat: ArrayLike, dy: ArrayLike, dx: ArrayLike) -> Axes:
    """Draw a standardized token of three features with the gradients above and below the norm.

    `x_hat` lies on the circle of radius √3. The mean of `dy` stands upright on the plane and is not
    seen. `dx` is that for a standard deviation of 1.

    Raises:
        ValueError: one of the three does not have three features.
    """
    vectors = {"x_hat": x_hat, "dy": dy, "dx": dx}
    tips = {}
    for name, vector in vectors.items():
        if np.shape(vector) != (3,):
            raise ValueError(f"{name}: got shape {np.shape(vector)}; expected (3,)")
        tips[name] = np.asarray(vector, dtype=np.float64) @ _PLANE
    ax.add_patch(Circle((0, 0), np.sqrt(3), fill=False, edgecolor="#888888"))
    for number, direction in enumerate(_PLANE, start=1):
        ax.plot(*np.outer(direction, [0.0, 2.0]), color="#888888", lw=1, ls=":")
        x, y = 2.75 * direction
        ax.text(x, y, f"feature {number}", ha="center", va="center", fontsize=11)
    ax.plot(*np.stack([tips["dy"], tips["dx"]], 1), color=NORM_COLORS["layer_norm"], ls="--")
    looks = {
        "x_hat": (NORM_COLORS["layer_norm"], "x̂"),
        "dy": ("#111111", "dy"),
        "dx": ("#332288", "dx"),
    }
    for name, (color, label) in looks.items():
        ax.quiver(0, 0, *tips[name], color=color, width=0.014 if name == "dx" else 0.008, **_ARROW)
        beyond = tips[name] * (1 + 0.25 / max(np.hypot(*tips[name]), 0.25))
        ax.text(beyond[0], beyond[1], label, color=color, ha="center", va="center", fontsize=13)
    ax.set(xlim=(-2.6, 2.6), ylim=(-2.2, 2.3), aspect="equal")
    ax.axis("off")
    return ax
