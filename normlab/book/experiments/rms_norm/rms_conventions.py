"""RMSNorm as others wrote it: what does each convention cost in half precision?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pandas as pd
import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.tables import where
from normlab.layers import rms_norm
from normlab.layers.standardization import accumulation_dtype

Name = Literal["torch", "Llama", "Gemma", "authors, TensorFlow", "authors, torch", "x-transformers"]
Dtype = Literal["float32", "float16", "bfloat16"]
Shape = Sequence[int]


def _last(shape: Shape) -> tuple[int, ...]:
    return tuple(range(-len(shape), 0))


def _float32_mean_square(input: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    x = input.to(accumulation_dtype(input.dtype))
    return x, x.square().mean(_last(shape), keepdim=True)


def statistics_in_half(
    input: Tensor, normalized_shape: Shape, weight: Tensor | float = 1.0, eps: float = 1e-8
) -> Tensor:
    """The plain formula in the dtype of the input, whatever it is."""
    mean_square = input.square().mean(_last(normalized_shape), keepdim=True)
    return weight * (input / (mean_square + eps).sqrt())


class ShortRMSNorm(nn.Module):
    """The plain formula as a module, as it is often written: in the dtype of the input.

    Args:
        eps: inside the root; zero in float16.
    """

    def __init__(self, features: int, eps: float = 1e-8) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last axis."""
        rms = (x.square().mean(-1, keepdim=True) + self.eps).sqrt()  # (*, 1)
        return self.weight * (x / rms)  # (*, H)


def eps_outside(
    input: Tensor, normalized_shape: Shape, weight: Tensor | float = 1.0, eps: float = 1e-8
) -> Tensor:
    """Divide by the root mean square plus eps, all in the dtype of the input."""
    norm = torch.linalg.vector_norm(input, dim=_last(normalized_shape), keepdim=True)
    return weight * (input / (norm * math.prod(normalized_shape) ** -0.5 + eps))


def norm_clamped(
    input: Tensor, normalized_shape: Shape, weight: Tensor | float = 1.0, eps: float = 1e-12
) -> Tensor:
    """Scale to unit length, where a length below eps counts as eps, then by the root of H."""
    norm = torch.linalg.vector_norm(input, dim=_last(normalized_shape), keepdim=True)
    return input / norm.clamp(min=eps) * math.prod(normalized_shape) ** 0.5 * weight


def cast_then_weight(
    input: Tensor, normalized_shape: Shape, weight: Tensor | float = 1.0, eps: float = 1e-6
) -> Tensor:
    """Round to the dtype of the input, then multiply by the weight."""
    x, mean_square = _float32_mean_square(input, normalized_shape)
    return weight * (x * torch.rsqrt(mean_square + eps)).to(input.dtype)


def one_plus_weight(
    input: Tensor, normalized_shape: Shape, weight: Tensor | float = 0.0, eps: float = 1e-6
) -> Tensor:
    """Multiply by 1 + weight in float32, then round."""
    x, mean_square = _float32_mean_square(input, normalized_shape)
    factor = 1.0 + (weight if isinstance(weight, float) else weight.to(x.dtype))
    return (x * torch.rsqrt(mean_square + eps) * factor).to(input.dtype)


@dataclass(frozen=True)
class Convention:
    """One way to write RMSNorm over the last axis."""

    apply: Callable[..., Tensor]  #: with the signature of :func:`normlab.layers.rms_norm`
    #: as the code states it; None is the machine epsilon of the accumulation dtype
    eps: float | None
    eps_placement: str  #: "inside" the root, "outside" of it, or "clamp", a lower bound
    statistics: str  #: dtype of the mean square, "float32" or "input"
    weight_cast: str  #: is the weight multiplied "before" or "after" the cast to the input's dtype?
    weight_offset: int = 0  #: what is added to the weight


CONVENTIONS: dict[Name, Convention] = {
    "torch": Convention(rms_norm, None, "inside", "float32", "before"),
    "Llama": Convention(cast_then_weight, 1e-6, "inside", "float32", "after"),
    "Gemma": Convention(one_plus_weight, 1e-6, "inside", "float32", "before", 1),
    "authors, TensorFlow": Convention(statistics_in_half, 1e-8, "inside", "input", "after"),
    "authors, torch": Convention(eps_outside, 1e-8, "outside", "input", "after"),
    "x-transformers": Convention(norm_clamped, 1e-12, "clamp", "input", "after"),
}


class ConventionLayer(nn.Module):
    """A convention as a layer over the last axis, so that it can stand in a model."""

    def __init__(self, name: Name, features: int) -> None:
        super().__init__()
        self.convention = CONVENTIONS[name]
        self.weight = nn.Parameter(torch.full((features,), 1.0 - self.convention.weight_offset))

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the last axis."""
        return self.convention.apply(input, self.weight.shape, self.weight)


def _exact(x: Tensor, weight: Tensor, convention: Convention | None) -> Tensor:
    """The formula in float64, with the eps of `convention` or without any."""
    x, weight = x.double(), weight.double()
    mean_square = x.square().mean(-1, keepdim=True)
    if convention is None:
        return x / mean_square.sqrt() * weight
    eps = torch.finfo(torch.float32).eps if convention.eps is None else convention.eps
    if convention.eps_placement == "outside":
        return x / (mean_square.sqrt() + eps) * weight
    if convention.eps_placement == "clamp":  # on the norm, not on the rms
        return x / mean_square.sqrt().clamp(min=eps / x.shape[-1] ** 0.5) * weight
    return x / (mean_square + eps).sqrt() * weight


@experiment(
    convention=get_args(Name), dtype=get_args(Dtype), scale=(1.0, 300.0, 1e-4), seed=range(5)
)
def rms_conventions(
    convention: Name,
    dtype: Dtype,
    scale: PositiveFloat,
    seed: Seed,
    *,
    rows: PositiveInt = 32,
) -> dict[str, Any]:
    """Put rows of one size in one dtype through one convention.

    Args:
        scale: standard deviation of the input, whose mean is 0.

    Returns:
        error: largest difference from the formula without eps, divided by the largest output;
            None where an output is not finite.
        output_rms: rms of the output before the weight acts (the weight divided out); None
            where an output is not finite.
        well_rounded: fraction of outputs that are the float64 result (with this convention's
            eps) rounded once.
        output_dtype: "float32", "float16" or "bfloat16".
    """
    written, stored_in = CONVENTIONS[convention], getattr(torch, dtype)
    generator = torch.Generator().manual_seed(seed)
    unit = torch.randn(rows, 256, generator=generator, dtype=torch.float64)
    x = (unit * scale).to(stored_in)
    weight = 1 + 0.2 * torch.randn(256, generator=generator, dtype=torch.float64)
    stored = (weight - written.weight_offset).to(stored_in)
    y = written.apply(x, (256,), stored)
    effective = stored.double() + written.weight_offset
    finite = bool(y.isfinite().all())
    exact = _exact(x, effective, None)
    error = ((y.double() - exact).abs().max() / exact.abs().max()).item()
    output_rms = (y.double() / effective).square().mean().sqrt().item()
    return {
        "error": error if finite else None,
        "output_rms": output_rms if finite else None,
        "well_rounded": (y == _exact(x, effective, written).to(y.dtype)).double().mean().item(),
        "output_dtype": str(y.dtype).removeprefix("torch."),
    }


def verdict(table: pd.DataFrame, convention: Name, dtype: Dtype, scale: float) -> str:
    """What comes out, in a word: "right", "0", "not finite", or the rms of the output."""
    found = where(table, convention=convention, dtype=dtype, scale=scale)
    if found.output_rms.isna().any():
        return "not finite"
    if found.output_rms.max() == 0:
        return "0"
    # 4 roundings of a bfloat16 number are three percent
    if found.error.max() < max(0.01, 4 * torch.finfo(getattr(torch, dtype)).eps):
        return "right"
    return f"rms {found.output_rms.median():.1g}"
