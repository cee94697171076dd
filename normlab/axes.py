"""Which cells each norm averages over, and which parameters it carries, as data.

Every norm in this book subtracts and divides by statistics of *some* of the cells of a
tensor. The norms differ in which cells share one mean; this table is the only place that
says so for pictures, for the NumPy reference and for tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

__all__ = ["NORMS", "NormAxes", "label_cells", "label_parameters", "reduced_axes"]

Kind = Literal["channel", "shape"]


@dataclass(frozen=True)
class NormAxes:
    """What one norm averages over.

    Attributes:
        kind: "channel" norms read the layout (N, C, *) and carry one weight and bias per
            channel; "shape" norms read trailing axes, `normalized_shape`, and carry one
            weight (and bias) per entry of that shape.
        over_batch: samples share statistics.
        over_channels: "all", "group" or "none" of the channels of a sample share statistics.
        centered: the mean is subtracted.
        reads: one sentence for readers and for alternative texts.
    """

    kind: Kind
    over_batch: bool
    over_channels: Literal["all", "group", "none"]
    centered: bool
    reads: str


NORMS: dict[str, NormAxes] = {
    "batch_norm": NormAxes(
        "channel", True, "none", True, "one channel, over the batch and all positions"
    ),
    "layer_norm": NormAxes(
        "shape", False, "all", True, "the trailing normalized_shape, for each leading index"
    ),
    "rms_norm": NormAxes(
        "shape", False, "all", False, "the trailing normalized_shape, for each leading index"
    ),
    "group_norm": NormAxes(
        "channel", False, "group", True, "one group of channels, over all positions of a sample"
    ),
    "instance_norm": NormAxes(
        "channel", False, "none", True, "one channel, over all positions of a sample"
    ),
}


def _norm(name: str) -> NormAxes:
    if name not in NORMS:
        raise ValueError(f"name: got {name!r}; expected one of {', '.join(map(repr, NORMS))}")
    return NORMS[name]


def reduced_axes(name: str, ndim: int, *, normalized_ndim: int = 1) -> tuple[int, ...]:
    """Axes that one mean is taken over, as non-negative sorted integers.

    Args:
        name: a key of :data:`NORMS`.
        ndim: number of axes of the input. For "group_norm" that of the grouped view
            (N, G, C/G, *), which has one axis more than the input.
        normalized_ndim: length of `normalized_shape`; used by "layer_norm" and "rms_norm".

    Returns:
        The reduced axes. The remaining axes index the means.

    Raises:
        ValueError: `name` is unknown, or `ndim` is too small for the norm.

    Example:
        >>> reduced_axes("batch_norm", 4)
        (0, 2, 3)
        >>> reduced_axes("layer_norm", 3)
        (2,)
    """
    norm = _norm(name)
    if norm.kind == "shape":
        if not 1 <= normalized_ndim <= ndim:
            raise ValueError(
                f"normalized_ndim: got {normalized_ndim} for an input of {ndim} axes; "
                f"expected 1 to {ndim}"
            )
        return tuple(range(ndim - normalized_ndim, ndim))
    if ndim < 2:
        raise ValueError(f"ndim: got {ndim}; {name} reads the layout (N, C, *), so at least 2")
    positions = tuple(range(2, ndim))
    return (0, *positions) if norm.over_batch else positions


def label_cells(
    name: str,
    shape: Sequence[int],
    *,
    num_groups: int | None = None,
    normalized_ndim: int = 1,
) -> np.ndarray:
    """Number the cells of a tensor so that cells with one number share their statistics.

    Args:
        name: a key of :data:`NORMS`.
        shape: shape of the input.
        num_groups: groups of channels; "group_norm" needs it, no other norm takes it.
        normalized_ndim: length of `normalized_shape`; used by "layer_norm" and "rms_norm".

    Shape:
        returns an integer array of `shape`.

    Raises:
        ValueError: an unknown `name`, a missing or unfit `num_groups`, or too few axes.

    Example:
        >>> label_cells("layer_norm", (2, 3))
        array([[0, 0, 0],
               [1, 1, 1]])
        >>> label_cells("batch_norm", (2, 3))
        array([[0, 1, 2],
               [0, 1, 2]])
    """
    shape = tuple(shape)
    norm = _norm(name)
    if (num_groups is not None) != (norm.over_channels == "group"):
        raise ValueError(
            f"num_groups: got {num_groups} for {name}; group_norm needs it, the others take none"
        )
    view = shape
    if num_groups is not None:
        if len(shape) < 2 or num_groups < 1 or shape[1] % num_groups:
            raise ValueError(f"num_groups: {num_groups} does not divide the channels of {shape}")
        view = (shape[0], num_groups, shape[1] // num_groups, *shape[2:])
    axes = reduced_axes(name, len(view), normalized_ndim=normalized_ndim)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(view))
    labels = np.arange(math.prod(kept)).reshape(kept)
    return np.broadcast_to(labels, view).reshape(shape).copy()


def label_parameters(name: str, shape: Sequence[int], *, normalized_ndim: int = 1) -> np.ndarray:
    """Number the cells of a tensor so that cells with one number share weight and bias.

    Args:
        name: a key of :data:`NORMS`.
        shape: shape of the input.
        normalized_ndim: length of `normalized_shape`; used by "layer_norm" and "rms_norm".

    Shape:
        returns an integer array of `shape`.

    Raises:
        ValueError: an unknown `name` or too few axes.

    Example:
        >>> label_parameters("layer_norm", (2, 3))
        array([[0, 1, 2],
               [0, 1, 2]])
    """
    shape = tuple(shape)
    if _norm(name).kind == "channel":
        reduced_axes(name, len(shape))  # at least two axes
        kept = tuple(size if axis == 1 else 1 for axis, size in enumerate(shape))
    else:
        axes = reduced_axes(name, len(shape), normalized_ndim=normalized_ndim)
        kept = tuple(size if axis in axes else 1 for axis, size in enumerate(shape))
    labels = np.arange(math.prod(kept)).reshape(kept)
    return np.broadcast_to(labels, shape).copy()
