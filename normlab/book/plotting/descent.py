"""The path of gradient descent on a quadratic, over rings of equal loss."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike


def plot_descent(ax: Axes, hessian: ArrayLike, path: ArrayLike, *, title: str = "") -> Axes:
    """Draw steps of gradient descent toward the origin, where the loss wᵀ H w / 2 is smallest.

    H is `hessian`, (2, 2), and `path` the weights w after 0, 1, ... steps, (steps + 1, 2).

    Raises:
        ValueError: shapes that do not fit, or an H that is not symmetric and positive definite.
    """
    h, w = np.asarray(hessian, dtype=np.float64), np.asarray(path, dtype=np.float64)
    if h.shape != (2, 2) or not np.allclose(h, h.T) or np.linalg.eigvalsh(h)[0] <= 0:
        raise ValueError(f"hessian: got {h.tolist()}; expected (2, 2), positive definite")
    if w.ndim != 2 or w.shape[1] != 2 or len(w) < 2:
        raise ValueError(f"path: got shape {w.shape}; expected (steps + 1, 2)")
    half = 1.15 * np.abs(w).max()
    axis = np.linspace(-half, half, 201)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    loss = np.einsum("xyi,ij,xyj->xy", grid, h, grid) / 2
    start = w[0] @ h @ w[0] / 2
    rings = start * np.array([1e-3, 0.03, 0.15, 0.4, 0.8, 1.4])
    ax.contour(axis, axis, loss, levels=rings, colors="#999999", linewidths=0.8)
    ax.plot(*w.T, color="#332288", marker="o", markersize=3.5, linewidth=1.2)
    ax.plot(0, 0, color="#111111", marker="x", markersize=9, linestyle="none", markeredgewidth=2)
    ax.set(title=title, xlabel="first weight − best", ylabel="second weight − best")
    ax.set_aspect("equal")
    ax.grid(False)
    return ax
