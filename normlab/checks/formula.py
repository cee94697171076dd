"""The norms as one formula with named conventions: the float64 oracle of the checks.

It shares no code with `normlab.layers` and `normlab.reference`, and it can be told to make a
known mistake, which is how a failed check is traced to its likely cause.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import torch
from torch import Tensor

__all__ = ["FAMILIES", "Formula", "default_eps"]

FAMILIES = ("layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm")


def default_eps(like: str, dtype: torch.dtype = torch.float32) -> float:
    """Default eps of the torch functional of this family."""
    if like != "rms_norm":
        return 1e-5
    half = dtype in (torch.float16, torch.bfloat16)
    return torch.finfo(torch.float32 if half else dtype).eps


@dataclasses.dataclass(frozen=True)
class Formula:
    """One norm with its conventions, and with the mistakes it is told to make.

    Attributes:
        like: family.
        normalized_ndim: trailing axes of layer and RMS norm.
        num_groups: of group norm.
        eps: units of x².
        eps_placement: "inside" the root, "outside" it (added to the root), or "clamp" (the
            root is at least sqrt(eps)).
        divisor: "n" or "n-1" of the variance.
        weight_offset: 0, or 1 where the layer multiplies by 1 + weight.
        centered: subtract the mean (RMS norm never does).
        uncentered: leave the mean in the numerator only.
        detach_mean: take the mean as a constant in the backward pass.
        detach_var: take the variance as a constant in the backward pass.
        dims: other axes to reduce, to describe a wrong axis.
        bias_first: multiply by the weight after adding the bias.
        sum_not_mean: leave out the division by n.
    """

    like: str
    normalized_ndim: int = 1
    num_groups: int = 1
    eps: float = 1e-5
    eps_placement: Literal["inside", "outside", "clamp"] = "inside"
    divisor: Literal["n", "n-1"] = "n"
    weight_offset: float = 0.0
    centered: bool = True
    uncentered: bool = False
    detach_mean: bool = False
    detach_var: bool = False
    dims: tuple[int, ...] | None = None
    bias_first: bool = False
    sum_not_mean: bool = False

    def replace(self, **changes: Any) -> Formula:
        """The same formula with other conventions."""
        return dataclasses.replace(self, **changes)

    def _view(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        if self.dims is not None:
            return x, self.dims
        if self.like in ("layer_norm", "rms_norm"):
            return x, tuple(range(x.dim() - self.normalized_ndim, x.dim()))
        if self.like == "batch_norm":
            return x, (0, *range(2, x.dim()))
        if self.like == "instance_norm":
            return x, tuple(range(2, x.dim()))
        n, c = x.shape[:2]
        view = x.reshape(n, self.num_groups, c // self.num_groups, *x.shape[2:])
        return view, tuple(range(2, view.dim()))

    def reduced(self, x: Tensor) -> tuple[int, ...]:
        """The axes of `x` (of its grouped view for group norm) that share statistics."""
        return self._view(x)[1]

    def parameter_view(self, x: Tensor) -> tuple[int, ...]:
        """Shape in which weight and bias are broadcast against `x`."""
        if self.like in ("layer_norm", "rms_norm"):
            kept = x.dim() - self.normalized_ndim
            return (1,) * kept + tuple(x.shape[kept:])
        return (1, x.shape[1]) + (1,) * (x.dim() - 2)

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor, int]:
        """Mean, variance (with this formula's divisor) and count; reduced axes have size 1."""
        view, dims = self._view(x)
        count = math.prod(view.shape[d] for d in dims)
        mean = view.mean(dims, keepdim=True)
        if self.like == "rms_norm" or not self.centered:
            mean = torch.zeros_like(mean)
        var = (view - mean).square().mean(dims, keepdim=True)
        if self.sum_not_mean:
            var = var * count
        if self.divisor == "n-1":
            var = var * (count / (count - 1)) if count > 1 else var * torch.nan
        return mean, var, count

    def divide(self, numerator: Tensor, var: Tensor) -> Tensor:
        """Divide by the root of the variance, with eps in its place."""
        if self.eps_placement == "inside":
            return numerator / (var + self.eps).sqrt()
        if self.eps_placement == "outside":
            return numerator / (var.sqrt() + self.eps)
        return numerator / var.sqrt().clamp_min(math.sqrt(self.eps))

    def normalize(self, x: Tensor) -> Tensor:
        """The normalized input, before weight and bias."""
        view, _ = self._view(x)
        mean, var, _ = self.statistics(x)
        if self.detach_mean:
            mean = mean.detach()
        if self.detach_var:
            var = var.detach()
        numerator = view if self.uncentered else view - mean
        return self.divide(numerator, var).reshape(x.shape)

    def affine(
        self, x: Tensor, x_hat: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Apply weight and bias, broadcast as this family carries them."""
        view = self.parameter_view(x)
        factor = None if weight is None else (self.weight_offset + weight).view(view)
        summand = None if bias is None else bias.view(view)
        if self.bias_first and factor is not None and summand is not None:
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
        numerator = x if self.uncentered else x - running_mean.view(view)
        x_hat = self.divide(numerator, running_var.view(view))
        return self.affine(x, x_hat, weight, bias)
