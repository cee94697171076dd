"""One record per norm: what it computes and how it is called, as data.

A norm is a choice of cells that share statistics, of a measure of their spread, and of cells
that share parameters. Pictures, the NumPy reference, the checks, the explorer and the tables of
the book read it here and nowhere else. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

__all__ = [
    "NORMS",
    "Case",
    "Norm",
    "find_norm",
    "label_cells",
    "label_parameters",
    "parameter_axes",
    "reduced_axes",
    "split_channels",
]

Spread = Literal["mean square", "sum of squares", "mean length"]


@dataclass(frozen=True)
class Case:
    """One kind of input that the checks call a norm with.

    Attributes:
        shape: of the input.
        parameter_shape: of weight and bias.
        normalized_ndim: trailing axes that shape norms reduce.
        num_groups: of norms over groups of channels.
        weight: whether the layer gets, or has, a weight.
        bias: whether the layer gets, or has, a bias.
        axis: what a shape norm reduces where that is not the last `normalized_ndim` axes, such as
            (1,) for images of shape (N, C, H, W).
        view: shape in which weight and bias are broadcast against the input; None: along the axes
            that the family gives them.
    """

    shape: tuple[int, ...]
    parameter_shape: tuple[int, ...]
    normalized_ndim: int = 1
    num_groups: int = 1
    weight: bool = True
    bias: bool = True
    axis: tuple[int, ...] | None = None
    view: tuple[int, ...] | None = None

    @property
    def is_one_row(self) -> bool:
        """Whether the first axis is among those that are reduced, so that there are no rows."""
        return self.normalized_ndim == len(self.shape) if self.axis is None else 0 in self.axis


@dataclass(frozen=True, kw_only=True)
class Norm:
    """What one norm computes and how it is called.

    Attributes:
        kind: "channel" norms read the layout (N, C, *); "shape" norms read trailing axes,
            `normalized_shape`.
        over_batch: samples share statistics.
        over_channels: "all", "group" or "none" of the channels of a sample share statistics.
        over_positions: the positions of a sample share statistics, in the layout (N, C, *).
        centered: the mean is subtracted.
        spread: what is divided by: the root of the mean square, the root of the sum of squares,
            the mean of the channels' lengths.
        eps: torch's default; None for the machine epsilon of the dtype of the statistics.
        eps_placement: "inside" the root, added "outside" it, or a lower bound ("clamp") of the
            mean square, or of the root of the sum of squares.
        parameters: what weight (and bias) have one entry for: each "channel", each cell of the
            normalized "shape"; "scalar" is one number for all, "none" no weight.
        weight_offset: what is added to the weight before it multiplies.
        signature: parameters of the function after the input, in their order.
        torch: dotted name of torch's function, or None where torch has none. The tables and
            records of the main chapters, which compare all norms, have those of torch.
        modules: names in `normlab.layers`, and in `torch.nn` where torch has the norm.
        cases: inputs of the checks, with distinct sizes of the axes.
        may_fail: check of `check_layer` -> why a right layer may fail it.
        invariances: keys of `normlab.book.proofs.invariances.TRANSFORMATIONS` that leave the norm
            of W x alone, for eps = 0.
        absent: part of the package or the book that this norm does not have -> why.
    """

    kind: Literal["channel", "shape"]
    over_batch: bool
    over_channels: Literal["all", "group", "none"]
    over_positions: bool = True
    centered: bool
    spread: Spread = "mean square"
    eps: float | None = 1e-5
    eps_placement: Literal["inside", "outside", "clamp"] = "inside"
    parameters: Literal["channel", "shape", "scalar", "none"]
    weight_offset: int = 0
    signature: tuple[str, ...]
    torch: str | None = None
    modules: tuple[str, ...]
    cases: tuple[Case, ...]
    may_fail: Mapping[str, str] = field(default_factory=dict)
    invariances: tuple[str, ...]
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def trailing(self) -> bool:
        """Whether statistics are taken over trailing axes."""
        return self.kind == "shape"

    @property
    def grouped(self) -> bool:
        """Whether groups of channels share statistics."""
        return self.over_channels == "group"

    @property
    def needs_positions(self) -> bool:
        """Whether an input of shape (N, C) leaves one cell to each mean."""
        return not self._reduced_axes(2)

    @property
    def has_weight(self) -> bool:
        """Whether the function takes a weight."""
        return "weight" in self.signature

    @property
    def has_bias(self) -> bool:
        """Whether the function takes a bias."""
        return "bias" in self.signature

    @property
    def has_running(self) -> bool:
        """Whether the function takes running statistics."""
        return "running_mean" in self.signature

    @property
    def roles(self) -> tuple[str, ...]:
        """The signature with one name for what instance norm calls `use_input_stats`."""
        return tuple("training" if n == "use_input_stats" else n for n in self.signature)

    def arguments(self, **values: Any) -> tuple[Any, ...]:
        """Arguments after the input, in the order of the signature.

        Args:
            values: by role; those that the norm does not take are left out. What is missing is
                the default: training, momentum 0.1, this record's eps, bounds 3 and 5 of a
                correction, and None.
        """
        defaults = {"training": True, "momentum": 0.1, "eps": self.eps, "r_max": 3.0, "d_max": 5.0}
        known = defaults | values
        return tuple(known.get(role) for role in self.roles)

    def parameter_shape(self, shape: Sequence[int], normalized_ndim: int = 1) -> tuple[int, ...]:
        """Shape of weight and bias for an input of `shape`."""
        return tuple(shape[axis] for axis in self._parameter_axes(len(shape), normalized_ndim))

    def _reduced_axes(self, ndim: int, normalized_ndim: int = 1) -> tuple[int, ...]:
        if self.trailing:
            return tuple(range(ndim - normalized_ndim, ndim))
        batch = [0] if self.over_batch else []
        # the channels of a group are behind the groups: (N, G, C/G, *)
        channels = {"all": [1], "group": [2], "none": []}[self.over_channels]
        positions = range(2 + self.grouped, ndim) if self.over_positions else []
        return (*batch, *channels, *positions)

    def _parameter_axes(self, ndim: int, normalized_ndim: int = 1) -> tuple[int, ...]:
        if self.parameters == "channel":
            return (1,)
        return tuple(range(ndim - normalized_ndim, ndim)) if self.parameters == "shape" else ()

    def torch_function(self) -> Callable[..., Any] | None:
        """torch's function, imported on demand; None where torch has none."""
        if self.torch is None:
            return None
        module, _, name = self.torch.rpartition(".")
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return function


_RUNNING = ("running_mean", "running_var", "weight", "bias")
_BATCHES = (
    Case((4, 7), (7,)),
    Case((33, 5), (5,)),
    Case((3, 5, 7), (5,)),
    Case((4, 3, 6, 5), (3,)),
    Case((6, 9), (9,), weight=False, bias=False),
)
_POSITIONS = (
    Case((3, 5, 4), (5,)),
    Case((2, 3, 6, 5), (3,)),
    Case((3, 4, 7), (4,), weight=False, bias=False),
)
_FEATURES_WITHOUT_BIAS = (
    Case((5, 4), (4,), bias=False),
    Case((3, 7, 64), (64,), bias=False),
    Case((2, 3, 5, 6), (5, 6), normalized_ndim=2, bias=False),
    Case((6, 9), (9,), weight=False, bias=False),
)
_FAILS_ON_A_BATCH = {
    "empty input": "a batch without samples has no statistics",
    "batch of one": "one sample without positions has no spread",
}

NORMS: dict[str, Norm] = {
    "batch_norm": Norm(
        kind="channel",
        over_batch=True,
        over_channels="none",
        centered=True,
        parameters="channel",
        signature=(*_RUNNING, "training", "momentum", "eps"),
        torch="torch.nn.functional.batch_norm",
        modules=("BatchNorm1d", "BatchNorm2d"),
        cases=_BATCHES,
        may_fail=_FAILS_ON_A_BATCH,
        invariances=("weight_rescale", "row_rescale", "data_rescale", "data_recenter"),
    ),
    "layer_norm": Norm(
        kind="shape",
        over_batch=False,
        over_channels="all",
        centered=True,
        parameters="shape",
        signature=("normalized_shape", "weight", "bias", "eps"),
        torch="torch.nn.functional.layer_norm",
        modules=("LayerNorm",),
        cases=(
            Case((5, 4), (4,)),
            Case((3, 7, 64), (64,)),
            Case((2, 3, 5, 6), (5, 6), normalized_ndim=2),
            Case((6, 9), (9,), weight=False, bias=False),
            Case((6, 10), (10,), bias=False),
        ),
        invariances=("weight_rescale", "weight_recenter", "data_rescale", "case_rescale"),
    ),
    "rms_norm": Norm(
        kind="shape",
        over_batch=False,
        over_channels="all",
        centered=False,
        eps=None,
        parameters="shape",
        signature=("normalized_shape", "weight", "eps"),
        torch="torch.nn.functional.rms_norm",
        modules=("RMSNorm",),
        cases=_FEATURES_WITHOUT_BIAS,
        invariances=("weight_rescale", "data_rescale", "case_rescale"),
    ),
    "group_norm": Norm(
        kind="channel",
        over_batch=False,
        over_channels="group",
        centered=True,
        parameters="channel",
        signature=("num_groups", "weight", "bias", "eps"),
        torch="torch.nn.functional.group_norm",
        modules=("GroupNorm",),
        cases=(
            Case((3, 6), (6,), num_groups=2),
            Case((2, 8, 5), (8,), num_groups=4),
            Case((3, 12, 6, 5), (12,), num_groups=3),
            Case((3, 4, 7), (4,), num_groups=1, weight=False, bias=False),
        ),
        invariances=("weight_rescale", "weight_recenter", "data_rescale", "case_rescale"),
    ),
    "instance_norm": Norm(
        kind="channel",
        over_batch=False,
        over_channels="none",
        centered=True,
        parameters="channel",
        signature=(*_RUNNING, "use_input_stats", "momentum", "eps"),
        torch="torch.nn.functional.instance_norm",
        modules=("InstanceNorm1d", "InstanceNorm2d"),
        cases=_POSITIONS,
        invariances=(
            "weight_rescale",
            "row_rescale",
            "data_rescale",
            "data_recenter",
            "case_rescale",
        ),
    ),
    "filter_response_norm": Norm(
        kind="channel",
        over_batch=False,
        over_channels="none",
        centered=False,
        eps=1e-6,
        parameters="channel",
        signature=("weight", "bias", "threshold", "eps"),
        modules=("FilterResponseNorm",),
        cases=_POSITIONS,
        invariances=("weight_rescale", "row_rescale", "data_rescale", "case_rescale"),
        absent={
            "check": "the formula of the checks has no lower bound of the output",
            "mutants": "without a check none can die; its own tests have some",
        },
    ),
    "scale_norm": Norm(
        kind="shape",
        over_batch=False,
        over_channels="all",
        centered=False,
        spread="sum of squares",
        eps_placement="clamp",
        parameters="scalar",
        signature=("weight", "eps"),
        modules=("ScaleNorm",),
        cases=(
            Case((5, 4), (), bias=False),
            Case((3, 7, 64), (), bias=False),
            Case((6, 9), (), weight=False, bias=False),
        ),
        invariances=("weight_rescale", "data_rescale", "case_rescale"),
    ),
    "zero_centered_rms_norm": Norm(
        kind="shape",
        over_batch=False,
        over_channels="all",
        centered=False,
        eps=1e-6,
        parameters="shape",
        weight_offset=1,
        signature=("normalized_shape", "weight", "eps"),
        modules=("ZeroCenteredRMSNorm",),
        cases=_FEATURES_WITHOUT_BIAS,
        invariances=("weight_rescale", "data_rescale", "case_rescale"),
        absent={
            "identify": "identify answers rms_norm with weight_offset 1, which is all that differs",
            "explorer": "before the weight it is RMS norm, which is there",
        },
    ),
    "global_response_norm": Norm(
        kind="channel",
        over_batch=False,
        over_channels="all",
        centered=False,
        spread="mean length",
        eps=1e-6,
        eps_placement="outside",
        parameters="channel",
        signature=("weight", "bias", "eps"),
        modules=("GlobalResponseNorm",),
        cases=_POSITIONS,
        invariances=(),
        absent={
            "check": "the formula of the checks divides the input, which is strengthened here",
            "mutants": "without a check none can die; its own tests have some",
            "identify": "it keeps the scale of its input; the reason that is given names it",
            "explorer": "it strengthens channels, and divides no cells by one spread",
        },
    ),
    "batch_renorm": Norm(
        kind="channel",
        over_batch=True,
        over_channels="none",
        centered=True,
        parameters="channel",
        signature=(*_RUNNING, "training", "momentum", "eps", "r_max", "d_max"),
        modules=("BatchRenorm1d", "BatchRenorm2d"),
        cases=_BATCHES,
        invariances=(),
        absent={
            "check": "the formula of the checks corrects nothing toward running statistics",
            "mutants": "without a check none can die; its own tests have some",
            "identify": "one run does not show the batch; the reason that is given names it",
            "explorer": "its means are over the cells of batch norm, which is there",
        },
    ),
}

# what a check may declare, and the values of a choice
CONVENTIONS: dict[str, tuple[Any, ...] | None] = {
    "eps": None,
    "eps_placement": ("inside", "outside", "clamp"),
    "divisor": ("n", "n-1"),
    "weight_offset": (0, 1),
    "weight_cast": ("before", "after"),
    "momentum": None,
    "num_groups": None,
}
# the check of batch norm whose statistics are fixed: it takes none of its input, so has no record
FROZEN = "frozen_batch_norm"


def find_norm(name: str) -> Norm:
    """The record of a norm.

    Raises:
        ValueError: `name` is unknown.
    """
    if name not in NORMS:
        raise ValueError(f"name: got {name!r}; expected one of {', '.join(map(repr, NORMS))}")
    return NORMS[name]


def reduced_axes(name: str, ndim: int, *, normalized_ndim: int = 1) -> tuple[int, ...]:
    """Axes that one mean is taken over, as non-negative sorted integers.

    The one place where this is decided: the reference, the formula of the checks, the names that
    `identify` gives, pictures and explorers ask here.

    Args:
        name: a key of :data:`NORMS`.
        ndim: number of axes of the input. For norms over groups that of :func:`split_channels`,
            which has one axis more than the input.
        normalized_ndim: length of `normalized_shape`; used by norms of kind "shape".

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
    return _check_layout(name, ndim, normalized_ndim)._reduced_axes(ndim, normalized_ndim)


def parameter_axes(name: str, ndim: int, *, normalized_ndim: int = 1) -> tuple[int, ...]:
    """Axes of the input along which weight and bias vary; none for one number, or no weight.

    Args:
        name: a key of :data:`NORMS`.
        ndim: number of axes of the input.
        normalized_ndim: length of `normalized_shape`; used by norms of kind "shape".

    Raises:
        ValueError: `name` is unknown, or `ndim` is too small for the norm.

    Example:
        >>> parameter_axes("batch_norm", 4), parameter_axes("layer_norm", 3)
        ((1,), (2,))
    """
    return _check_layout(name, ndim, normalized_ndim)._parameter_axes(ndim, normalized_ndim)


def split_channels(shape: Sequence[int], num_groups: int) -> tuple[int, ...]:
    """The view (N, G, C/G, *) of an input (N, C, *), whose channels form adjacent groups.

    Raises:
        ValueError: `num_groups` does not divide the channels.

    Example:
        >>> split_channels((5, 6, 7), 2)
        (5, 2, 3, 7)
    """
    if len(shape) < 2 or num_groups < 1 or shape[1] % num_groups:
        raise ValueError(f"num_groups: {num_groups} does not divide the channels of {tuple(shape)}")
    return (shape[0], num_groups, shape[1] // num_groups, *shape[2:])


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
        num_groups: groups of channels; norms over groups need it, no other norm takes it.
        normalized_ndim: length of `normalized_shape`; used by norms of kind "shape".

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
    if (num_groups is not None) != find_norm(name).grouped:
        raise ValueError(
            f"num_groups: got {num_groups} for {name}; group_norm needs it, the others take none"
        )
    view = tuple(shape) if num_groups is None else split_channels(shape, num_groups)
    over = reduced_axes(name, len(view), normalized_ndim=normalized_ndim)
    return _number(view, [axis for axis in range(len(view)) if axis not in over]).reshape(shape)


def label_parameters(name: str, shape: Sequence[int], *, normalized_ndim: int = 1) -> np.ndarray:
    """Number the cells of a tensor so that cells with one number share weight and bias.

    Args:
        name: a key of :data:`NORMS`.
        shape: shape of the input.
        normalized_ndim: length of `normalized_shape`; used by norms of kind "shape".

    Shape:
        returns an integer array of `shape`.

    Raises:
        ValueError: an unknown `name`, a norm without parameters, or too few axes.

    Example:
        >>> label_parameters("layer_norm", (2, 3))
        array([[0, 1, 2],
               [0, 1, 2]])
    """
    if find_norm(name).parameters == "none":
        raise ValueError(f"name: {name} has no weight, so no cells share one")
    axes = parameter_axes(name, len(shape), normalized_ndim=normalized_ndim)
    return _number(tuple(shape), axes)


def _check_layout(name: str, ndim: int, normalized_ndim: int) -> Norm:
    norm = find_norm(name)
    if norm.trailing and not 1 <= normalized_ndim <= ndim:
        raise ValueError(
            f"normalized_ndim: got {normalized_ndim} for an input of {ndim} axes; "
            f"expected 1 to {ndim}"
        )
    if not norm.trailing and ndim < 2:
        raise ValueError(f"ndim: got {ndim}; {name} reads the layout (N, C, *), so at least 2")
    return norm


def _number(shape: tuple[int, ...], axes: Sequence[int]) -> np.ndarray:
    """Number the cells of `shape` by their index along `axes`, from 0 in the order of memory."""
    kept = tuple(size if axis in axes else 1 for axis, size in enumerate(shape))
    return np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), shape).copy()
