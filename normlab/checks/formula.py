"""The norms as one formula with named conventions: the float64 oracle of the checks.

It shares no arithmetic with `normlab.layers` and `normlab.reference`, and it can be told to make a
known mistake, which is how a failed check is traced to its likely cause. Which cells share a mean
is the record's to say, in `normlab.norms`; that it is true is what `tests/test_norms.py` shows.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import torch
from torch import Tensor

from normlab.norms import NORMS, Case, parameter_axes, reduced_axes, split_channels

# those of shapes first
FAMILIES = tuple(
    sorted(
        (name for name, norm in NORMS.items() if "check" not in norm.absent),
        key=lambda name: not NORMS[name].trailing,
    )
)


def default_eps(like: str) -> float:
    """Default eps of the functional of this family, for float32 input and for 16 bits."""
    eps = NORMS[like].eps
    return torch.finfo(torch.float32).eps if eps is None else eps


def _root(var: Tensor) -> Tensor:
    """The root, constant at 0: what is divided by it is 0 there, and so is its share in dx."""
    zero = var == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, var).sqrt())


@dataclasses.dataclass(frozen=True)
class Formula:
    """One norm with its conventions, and with the mistakes it is told to make."""

    like: str  #: family; its record says over which cells and by which spread it normalizes
    normalized_ndim: int = 1  #: trailing axes of layer and RMS norm
    #: axes that layer and RMS norm reduce in place of the trailing ones
    axis: tuple[int, ...] | None = None
    #: shape in which weight and bias are broadcast; None: along the axes that the family gives them
    weight_view: tuple[int, ...] | None = None
    num_groups: int = 1  #: of group norm
    eps: float = 1e-5  #: units of x²
    #: "inside" the root, "outside" it (added to the root), or "clamp" (the root is at least
    #: sqrt(eps)); "twice", inside and outside, is a mistake
    eps_placement: Literal["inside", "outside", "clamp", "twice"] = "inside"
    #: what the clamp bounds by eps: the variance, the root, or the norm, which is the root times
    #: sqrt(n)
    clamp_of: Literal["variance", "root", "norm"] = "variance"
    divisor: Literal["n", "n-1"] = "n"  #: of the variance
    weight_offset: float = 0.0  #: 0, or 1 where the layer multiplies by 1 + weight
    #: subtract the mean from what is divided; None: as the family does
    center_numerator: bool | None = None
    #: subtract the mean before squaring; None: as the family does
    center_variance: bool | None = None
    detach_mean: bool = False  #: take the mean as a constant in the backward pass
    detach_var: bool = False  #: take the variance as a constant in the backward pass
    dims: tuple[int, ...] | None = None  #: other axes to reduce, to describe a wrong axis
    block: int | None = None  #: of the reduced axis, to describe statistics in blocks of this size
    #: how channels form groups; all but "adjacent" are mistakes
    grouping: Literal["adjacent", "interleaved", "per position", "memory"] = "adjacent"
    #: all but "weight, bias" are mistakes
    affine_order: Literal["weight, bias", "bias, weight", "no weight", "no bias", "none"] = (
        "weight, bias"
    )
    #: what the numerator is divided by; all but "root" are mistakes
    root: Literal["root", "variance", "inverse", "one"] = "root"
    sum_not_mean: bool = False  #: leave out the division by n
    padded: bool = False  #: a row is filled up with zeros to a power of two behind its mean
    one_pass: bool = False  #: take the variance as mean(x²) - mean(x)², which cancels
    #: mean and variance of each channel in place of those of the input
    fixed: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, like: str, **conventions: Any) -> Formula:
        """The formula with the conventions of torch, or of the record, where none are given."""
        norm = NORMS[like]
        usual = {
            "eps": default_eps(like),
            "eps_placement": norm.eps_placement,
            "clamp_of": "root" if norm.spread == "sum of squares" else "variance",
            "weight_offset": float(norm.weight_offset),
        }
        return cls(like, **(usual | conventions))

    def at(self, case: Case) -> Formula:
        """The formula with the axes and groups of a case."""
        return self.replace(
            normalized_ndim=case.normalized_ndim,
            num_groups=case.num_groups,
            axis=case.axis,
            weight_view=case.view,
        )

    def replace(self, **changes: Any) -> Formula:
        """The same formula with other conventions."""
        return dataclasses.replace(self, **changes)

    def view(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """`x`, or its grouped view, and the axes of it that share statistics."""
        if self.dims is not None:
            return x, self.dims
        if self.block is not None:
            (axis,) = self.replace(block=None).view(x)[1]
            return x.unflatten(axis, (-1, self.block)), (axis + 1,)
        if self.axis is not None:
            return x, self.axis
        if not NORMS[self.like].grouped:
            return x, reduced_axes(self.like, x.dim(), normalized_ndim=self.normalized_ndim)
        shape = split_channels(x.shape, self.num_groups)
        if self.grouping == "interleaved":
            view = x.reshape(shape[0], shape[2], shape[1], *shape[3:])
            return view, (1, *range(3, view.dim()))
        view = x.reshape(shape)
        per_position = self.grouping == "per position"
        return view, (2,) if per_position else reduced_axes(self.like, view.dim())

    def cells(self, case: Case) -> int:
        """How many cells of an input one mean is over."""
        view, dims = self.at(case).view(torch.empty(case.shape, device="meta"))
        return math.prod(view.shape[d] for d in dims)

    def parameter_view(self, x: Tensor) -> tuple[int, ...]:
        """Shape in which weight and bias are broadcast against `x`."""
        if self.weight_view is not None:
            return (1,) * (x.dim() - len(self.weight_view)) + self.weight_view
        axes = parameter_axes(self.like, x.dim(), normalized_ndim=self.normalized_ndim)
        return tuple(size if axis in axes else 1 for axis, size in enumerate(x.shape))

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor, int]:
        """Mean, squared spread (by this formula's divisor) and count; reduced axes have size 1."""
        view, dims = self.view(x)
        count = math.prod(view.shape[d] for d in dims)
        if self.fixed is not None:
            channels = (1, -1) + (1,) * (x.dim() - 2)
            return self.fixed[0].view(channels), self.fixed[1].view(channels), count
        mean = view.mean(dims, keepdim=True)
        centered = view - mean if self._centered(self.center_variance) else view
        var = centered.square().mean(dims, keepdim=True)
        if self.padded:  # each adds (0 - mean)²
            lanes = 2 ** (count - 1).bit_length() - count
            var = var + lanes / count * mean.square()
        if self.one_pass:
            var = view.square().mean(dims, keepdim=True) - mean.square()
        if self.sum_not_mean != (NORMS[self.like].spread == "sum of squares"):
            var = var * count
        if self.divisor == "n-1":
            var = var * (count / (count - 1)) if count > 1 else var * torch.nan
        return mean, var, count

    def _centered(self, choice: bool | None) -> bool:
        return NORMS[self.like].centered if choice is None else choice

    def floor(self, count: int) -> float:
        """Lower bound of the root, if eps is one."""
        if self.clamp_of == "variance":
            return math.sqrt(self.eps)
        return self.eps if self.clamp_of == "root" else self.eps / math.sqrt(count)

    def denominator(self, var: Tensor, count: int) -> Tensor:
        """What the numerator is divided by: the root of the variance, with eps in its place."""
        if self.root == "one":
            return torch.ones_like(var)
        if self.eps_placement == "inside":
            root = (var + self.eps).sqrt()
        elif self.eps_placement == "outside":
            root = _root(var) + self.eps
        elif self.eps_placement == "twice":
            root = (var + self.eps).sqrt() + self.eps
        else:
            root = _root(var).clamp_min(self.floor(count))
        return {"root": root, "variance": root.square(), "inverse": 1 / root}[self.root]

    def numerator(self, x: Tensor, mean: Tensor) -> Tensor:
        """What is divided."""
        return x - mean if self._centered(self.center_numerator) else x

    def normalize(self, x: Tensor) -> Tensor:
        """The normalized input, before weight and bias."""
        if self.grouping == "memory":  # as of a group's channels in the order of channels last
            last = x.movedim(1, -1)
            groups = last.reshape(len(x), self.num_groups, -1)
            adjacent = self.replace(grouping="adjacent").normalize(groups)
            return adjacent.reshape(last.shape).movedim(-1, 1)
        view, _ = self.view(x)
        mean, var, count = self.statistics(x)
        if self.detach_mean:
            mean = mean.detach()
        if self.detach_var:
            var = var.detach()
        return (self.numerator(view, mean) / self.denominator(var, count)).reshape(x.shape)

    def affine(
        self, x: Tensor, x_hat: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Apply weight and bias, broadcast as this family carries them."""
        view = self.parameter_view(x)
        factor = None if weight is None else (self.weight_offset + weight).view(view)
        summand = None if bias is None else bias.view(view)
        if self.affine_order in ("no weight", "none"):
            factor = None
        if self.affine_order in ("no bias", "none"):
            summand = None
        if self.affine_order == "bias, weight" and factor is not None and summand is not None:
            return (x_hat + summand) * factor
        y = x_hat if factor is None else x_hat * factor
        return y if summand is None else y + summand

    def __call__(
        self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        """The layer's output from the input's own statistics."""
        return self.affine(x, self.normalize(x), weight, bias)

    def evaluate(
        self,
        x: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """The layer's output from running statistics."""
        view = (1, x.shape[1]) + (1,) * (x.dim() - 2)
        numerator = self.numerator(x, running_mean.view(view))
        denominator = self.denominator(running_var.view(view), 1)
        return self.affine(x, numerator / denominator, weight, bias)
