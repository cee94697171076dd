"""The inputs that functions are called with, as data."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["FUNCTION_CASES", "Case", "Outcome"]


@dataclass(frozen=True)
class Case:
    """One kind of input.

    Attributes:
        shape: of the input.
        parameter_shape: of weight and bias.
        normalized_ndim: trailing axes that layer and RMS norm reduce.
        num_groups: of group norm.
        weight: whether the layer gets, or has, a weight.
        bias: whether the layer gets, or has, a bias.
        channels_first: layer and RMS norm reduce axis 1, as for images of shape (N, C, H, W).
    """

    shape: tuple[int, ...]
    parameter_shape: tuple[int, ...]
    normalized_ndim: int = 1
    num_groups: int = 1
    weight: bool = True
    bias: bool = True
    channels_first: bool = False

    @property
    def lacks_parameters(self) -> bool:
        """Whether a weight or bias that functions of this family may get is None."""
        return not self.weight


@dataclass
class Outcome:
    """What one call gave; None where there is no such thing."""

    y: Tensor
    dx: Tensor | None = None
    dweight: Tensor | None = None
    dbias: Tensor | None = None


FUNCTION_CASES: dict[str, list[Case]] = {
    # small and large feature counts, distinct sizes per axis, with and without parameters
    "layer_norm": [
        Case((5, 4), (4,)),
        Case((3, 7, 64), (64,)),
        Case((2, 3, 5, 6), (5, 6), normalized_ndim=2),
        Case((6, 9), (9,), weight=False, bias=False),
        Case((6, 10), (10,), bias=False),
    ],
    "rms_norm": [
        Case((5, 4), (4,), bias=False),
        Case((3, 7, 64), (64,), bias=False),
        Case((2, 3, 5, 6), (5, 6), normalized_ndim=2, bias=False),
        Case((6, 9), (9,), weight=False, bias=False),
    ],
    "batch_norm": [
        Case((4, 7), (7,)),
        Case((33, 5), (5,)),
        Case((3, 5, 7), (5,)),
        Case((4, 3, 6, 5), (3,)),
        Case((6, 9), (9,), weight=False, bias=False),
    ],
    "group_norm": [
        Case((3, 6), (6,), num_groups=2),
        Case((2, 8, 5), (8,), num_groups=4),
        Case((3, 12, 6, 5), (12,), num_groups=3),
        Case((3, 4, 7), (4,), num_groups=1, weight=False, bias=False),
    ],
    "instance_norm": [
        Case((3, 5, 4), (5,)),
        Case((2, 3, 6, 5), (3,)),
        Case((3, 4, 7), (4,), weight=False, bias=False),
    ],
}
