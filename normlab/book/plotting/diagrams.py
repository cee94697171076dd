"""Pictures of a tensor in which the cells that share one mean have one color.

Every color is read off :func:`normlab.norms.label_cells`; nothing here knows what a norm does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from normlab.book.plotting.style import make_axes, norm_style
from normlab.norms import NORMS, find_norm, label_cells, label_parameters

Layout = Literal["channels", "tokens"]

_DEPTH = (0.45, 0.38)  # one step into the page along the first axis, in cells
_EDGE = "#444444"
_AXIS_NAMES = {2: ("N", "D"), 3: ("N", "C", "positions")}


def plot_shared_cells(
    ax: Axes,
    name: str,
    shape: Sequence[int],
    *,
    normalized_ndim: int = 1,
    highlight: int = 0,
    parameters: int | None = None,
    axis_names: Sequence[str] | None = None,
    order: Sequence[int] | None = None,
    framed: tuple[int, int] | None = None,
) -> Axes:
    """Draw a tensor; the cells of one mean are filled, those of each other mean share a tint.

    Args:
        ax: drawn on and returned.
        name: a key of :data:`normlab.norms.NORMS`; a norm over groups has one here.
        shape: two axes draw a table, in whose cells stand the numbers of their means; three
            draw a block: first axis into the page, second to the right, third downward. Of
            more than three, the third and the following are drawn as one.
        normalized_ndim: length of `normalized_shape`, for norms of kind "shape".
        highlight: number of the mean whose cells are filled.
        parameters: number of a weight; the cells that it multiplies are marked with a dot.
        axis_names: one per drawn axis; ("N", "D") or ("N", "C", "positions") by default.
        order: the axes of `shape` in the order in which they are drawn; as they stand by default.
        framed: first and second index, as drawn, of cells that get a thick frame.

    Raises:
        ValueError: fewer than two axes, an empty one, or a `highlight` or `parameters` that
            numbers no cell.
    """
    order = range(len(shape)) if order is None else order
    num_groups = 1 if find_norm(name).grouped else None
    labels = label_cells(name, shape, num_groups=num_groups, normalized_ndim=normalized_ndim)
    labels = labels.transpose(order)
    weights = None
    if parameters is not None:
        weights = label_parameters(name, shape, normalized_ndim=normalized_ndim).transpose(order)
        _check_number("parameters", parameters, weights)
    _draw(ax, name, labels, highlight, weights, parameters, axis_names, framed)
    ax.set_title(f"{norm_style(name)['label']}\n{_count(name, labels)}")
    return ax


@dataclass(frozen=True)
class _Panel:
    """One picture of the family.

    `order` leads from the drawn axes to those that the norm reads: a norm of shapes reads trailing
    axes, so channels go last for it; a norm of channels reads axis 1.
    """

    name: str
    title: str
    count: str
    order: tuple[int, int, int] = (0, 1, 2)
    normalized_ndim: int = 1


_LAST = (0, 2, 1)
_PANELS: dict[Layout, tuple[_Panel, ...]] = {
    "channels": (
        _Panel("batch_norm", "one per channel", "C"),
        _Panel("layer_norm", "one per sample", "N", normalized_ndim=2),
        _Panel("layer_norm", "per sample, position", "N·P", _LAST),
        _Panel("instance_norm", "per sample, channel", "N·C"),
        _Panel("group_norm", "per sample, group", "N·G"),
        _Panel("rms_norm", "per sample, position", "N·P", _LAST),
    ),
    "tokens": (
        _Panel("batch_norm", "one per feature", "D", _LAST),
        _Panel("layer_norm", "one per sequence", "N", normalized_ndim=2),
        _Panel("layer_norm", "one per token", "N·T"),
        _Panel("instance_norm", "per sequence, feature", "N·D", _LAST),
        _Panel("group_norm", "per sequence, group", "N·G", _LAST),
        _Panel("rms_norm", "one per token", "N·T"),
    ),
}
_NAMES: dict[Layout, tuple[str, str, str]] = {
    "channels": ("N", "C", "P (positions)"),
    "tokens": ("N", "T (tokens)", "D"),
}


def make_family_figure(layout: Layout, shape: Sequence[int] | None = None) -> Figure:
    """Make the figure "which cells share a mean": the same tensor once per norm, and a heading.

    The panels are batch, layer over a sample, layer over the features of one position (or token),
    instance, group and RMS over the same cells as the third.

    Args:
        layout: what the axes mean. Norms of channels read tokens as (N, D, T), as torch expects.
        shape: (N, C, positions), or (N, T, D) for "tokens". By default all counts of means differ.

    Raises:
        ValueError: a `shape` of other than three axes.
    """
    if shape is None:
        shape = (4, 6, 5) if layout == "channels" else (4, 5, 6)
    if len(shape) != 3:
        raise ValueError(f"shape: got {tuple(shape)}; expected (N, C, positions) or (N, T, D)")
    figure, axes = make_axes(6, columns=3, height=5.4)
    for ax, panel in zip(axes, _PANELS[layout], strict=True):
        labels = label_cells(
            panel.name,
            [shape[axis] for axis in panel.order],
            num_groups=2 if NORMS[panel.name].grouped else None,
            normalized_ndim=panel.normalized_ndim,
        ).transpose(panel.order)  # swapping two axes is its own inverse
        _draw(ax, panel.name, labels, 0, None, None, _NAMES[layout])
        label = norm_style(panel.name)["label"]
        ax.set_title(label[0].upper() + label[1:], fontweight="bold", fontsize=13, pad=35)
        text = f"{panel.count} = {_count(panel.name, labels)}\n{panel.title}"
        ax.text(0.5, 1.0, text, transform=ax.transAxes, ha="center", va="bottom", fontsize=11)
    figure.suptitle("Same tensor: the filled cells share one mean", fontsize=14)
    return figure


def _count(name: str, labels: np.ndarray) -> str:
    count = len(np.unique(labels))
    noun = "mean" if NORMS[name].centered else "mean square"
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _check_number(argument: str, number: int, labels: np.ndarray) -> None:
    if not (labels == number).any():
        raise ValueError(f"{argument}: got {number}; expected 0 to {labels.max()}")


def _alternate(labels: np.ndarray) -> np.ndarray:
    """0 or 1 for each cell, different in neighbors that belong to different means."""
    parity = np.zeros(labels.shape, dtype=int)
    for axis in range(labels.ndim):
        corner = tuple(slice(None) if other == axis else slice(1) for other in range(labels.ndim))
        steps = np.diff(labels[corner], axis=axis, prepend=labels[corner].take([0], axis)) != 0
        parity = parity + steps.cumsum(axis)
    return parity % 2


def _draw(
    ax: Axes,
    name: str,
    labels: np.ndarray,
    highlight: int,
    weights: np.ndarray | None,
    parameters: int | None,
    axis_names: Sequence[str] | None,
    framed: tuple[int, int] | None = None,
) -> None:
    if labels.ndim < 2 or labels.size == 0:
        raise ValueError(f"shape: got {labels.shape}; expected two axes or more, none empty")
    _check_number("highlight", highlight, labels)
    if labels.ndim > 3:
        labels = labels.reshape(*labels.shape[:2], -1)
        weights = None if weights is None else weights.reshape(labels.shape)
    names = _AXIS_NAMES[labels.ndim] if axis_names is None else tuple(axis_names)
    if len(names) != labels.ndim:
        raise ValueError(f"axis_names: got {names}; expected {labels.ndim}, one per drawn axis")
    faces, cells = _table(labels) if labels.ndim == 2 else _block(labels)
    strong = np.array(colors.to_rgb(norm_style(name)["color"]))
    tints = np.stack([1 - 0.10 * (1 - strong), 1 - 0.34 * (1 - strong)])
    index = tuple(cells.T)
    fill = tints[_alternate(labels)[index]]
    fill[labels[index] == highlight] = strong
    collection = PolyCollection(faces, facecolors=fill, edgecolors=_EDGE, linewidths=0.8)
    collection.set_gid("cells")
    ax.add_collection(collection)
    if framed is not None:
        inside = [face for face, cell in zip(faces, cells, strict=True) if (*cell[:2],) == framed]
        _frame(ax, inside)
    centers = np.array([face.mean(axis=0) for face in faces])
    if labels.ndim == 2:
        for (x, y), number, color in zip(centers, labels[index], fill, strict=True):
            _write_number(ax, x, y, int(number), color, dotted=weights is not None)
    if weights is not None:
        x, y = centers[weights[index] == parameters].T
        ax.scatter(x, y, s=28, color="black", edgecolors="white", zorder=3, gid="weight")
    _name_axes(ax, labels.shape, names)
    ax.set_aspect("equal")
    ax.autoscale_view()
    ax.axis("off")


def _frame(ax: Axes, faces: Sequence[np.ndarray]) -> None:
    """Draw the outline of the faces together: the edges that belong to one of them only."""
    found: dict[frozenset[tuple[float, ...]], int] = {}
    for face in faces:
        corners = [tuple(corner) for corner in face.round(6).tolist()]
        for edge in zip(corners, corners[1:] + corners[:1], strict=True):
            found[frozenset(edge)] = found.get(frozenset(edge), 0) + 1
    outline = [[*edge] for edge, count in found.items() if count == 1]
    ax.add_collection(LineCollection(outline, colors="black", linewidths=3.5, capstyle="round"))


def _write_number(
    ax: Axes, x: float, y: float, number: int, fill: np.ndarray, *, dotted: bool
) -> None:
    color = "white" if fill @ (0.3, 0.59, 0.11) < 0.55 else "#111111"
    shift = 0.25 if dotted else 0.0  # leaves the center to the dot
    ax.text(x - shift, y + shift, str(number), color=color, ha="center", va="center", fontsize=11)


def _table(labels: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Corners of the cells of a table, first row on top, and which cell each is."""
    cells = np.argwhere(np.ones_like(labels, dtype=bool))
    square = np.array([(0.0, 0.0), (1, 0), (1, -1), (0, -1)])
    return [square + np.array([column, -row]) for row, column in cells], cells


def _block(labels: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Corners of the visible faces of a block's cells, and which cell each belongs to."""
    back = np.array(_DEPTH)
    right, down = np.array([1.0, 0.0]), np.array([0.0, -1.0])
    depth, width, height = labels.shape
    faces: list[np.ndarray] = []
    cells: list[tuple[int, int, int]] = []
    # Front, top and right side: where a cell's face starts, what spans it, and its cells.
    sides = (
        (0 * right, right, down, np.ndindex(1, width, height), (0, 0, 0)),
        (0 * right, right, back, np.ndindex(depth, width, 1), (0, 0, 0)),
        (right, back, down, np.ndindex(depth, 1, height), (0, width - 1, 0)),
    )
    for start, one, other, side, first in sides:
        for cell in side:
            i, j, k = np.add(cell, first)
            corner = start + i * back + j * right + k * down
            faces.append(corner + np.array([0 * one, one, one + other, other]))
            cells.append((i, j, k))
    return faces, np.array(cells)


def _name_axes(ax: Axes, shape: tuple[int, ...], names: Sequence[str]) -> None:
    """Write the names of the axes along the edges that they run along."""
    style: dict[str, Any] = {"fontsize": 11, "color": "#111111"}
    if len(shape) == 2:
        rows, columns = shape
        ax.text(columns / 2, -rows - 0.15, f"{names[1]} →", ha="center", va="top", **style)
        if names[0]:
            text = f"← {names[0]}"
            ax.text(-0.15, -rows / 2, text, ha="right", va="center", rotation=90, **style)
        return
    depth, width, height = shape
    ax.text(width / 2, -height - 0.2, f"{names[1]} →", ha="center", va="top", **style)
    ax.text(-0.2, -height / 2, f"← {names[2]}", ha="right", va="center", rotation=90, **style)
    middle = np.array([width, -height]) + depth / 2 * np.array(_DEPTH)
    ax.text(middle[0] + 0.2, middle[1] - 0.1, f"{names[0]} ↗", ha="left", va="top", **style)
