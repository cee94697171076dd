"""RMSNorm as others wrote it: what does each convention cost in half precision?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normlab.experiments.settings import Count, Index, Positive, check_settings
from normlab.layers import rms_norm
from normlab.layers.standardization import accumulation_dtype

__all__ = [
    "CONVENTIONS",
    "Config",
    "Convention",
    "ConventionLayer",
    "Outcome",
    "Result",
    "cast_then_weight",
    "eps_outside",
    "norm_clamped",
    "one_plus_weight",
    "run",
    "statistics_in_half",
]

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


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
    """One way to write RMSNorm over the last axis.

    Attributes:
        apply: with the signature of :func:`normlab.layers.rms_norm`.
        eps: as the code states it; None is the machine epsilon of the accumulation dtype.
        eps_placement: "inside" the root, "outside" of it, or "clamp", a lower bound.
        statistics: dtype of the mean square, "float32" or "input".
        weight_cast: is the weight multiplied "before" or "after" the cast to the input's dtype?
        weight_offset: what is added to the weight.
    """

    apply: Callable[..., Tensor]
    eps: float | None
    eps_placement: str
    statistics: str
    weight_cast: str
    weight_offset: int = 0


CONVENTIONS: dict[str, Convention] = {
    "torch": Convention(rms_norm, None, "inside", "float32", "before"),
    "Llama": Convention(cast_then_weight, 1e-6, "inside", "float32", "after"),
    "Gemma": Convention(one_plus_weight, 1e-6, "inside", "float32", "before", 1),
    "authors, TensorFlow": Convention(statistics_in_half, 1e-8, "inside", "input", "after"),
    "authors, torch": Convention(eps_outside, 1e-8, "outside", "input", "after"),
    "x-transformers": Convention(norm_clamped, 1e-12, "clamp", "input", "after"),
}


class ConventionLayer(nn.Module):
    """A convention as a layer over the last axis, so that it can stand in a model.

    Args:
        name: of :data:`CONVENTIONS`.
        features: H.
    """

    def __init__(self, name: str, features: int) -> None:
        super().__init__()
        self.convention = CONVENTIONS[name]
        self.weight = nn.Parameter(torch.full((features,), 1.0 - self.convention.weight_offset))

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the last axis."""
        y: Tensor = self.convention.apply(input, self.weight.shape, self.weight)
        return y


@dataclass(frozen=True)
class Config:
    """Every convention on rows of every size in every dtype.

    Attributes:
        conventions: names of :data:`CONVENTIONS`.
        dtypes: of input and weight.
        scales: standard deviation of the input, whose mean is 0.
        features: H.
        rows: rows of the input.
        seeds: of rows and weight.
    """

    conventions: tuple[str, ...] = tuple(CONVENTIONS)
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    scales: tuple[Positive, ...] = (1.0, 300.0, 1e-4)
    features: Count = 256
    rows: Count = 32
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        check_settings(self)
        for field, allowed in (("conventions", CONVENTIONS), ("dtypes", DTYPES)):
            for name in getattr(self, field):
                if name not in allowed:
                    raise ValueError(
                        f"{field}: got {name!r}; expected some of {', '.join(allowed)}"
                    )
        if min(self.scales) <= 0:
            raise ValueError(f"scales: got {self.scales}; expected positive sizes")
        if min(self.features, self.rows) < 1:
            raise ValueError("features, rows: expected at least one of each")


@dataclass(frozen=True)
class Outcome:
    """One convention, one dtype, one size of the input.

    Attributes:
        convention: name.
        dtype: of input and weight.
        scale: of the input.
        seed: of rows and weight.
        error: largest difference from the formula without eps, divided by the largest output;
            None where an output is not finite.
        output_rms: rms of the output before the weight acts (the weight divided out); None
            where an output is not finite.
        well_rounded: fraction of outputs that are the float64 result (with this convention's
            eps) rounded once.
        output_dtype: "float32", "float16" or "bfloat16".
    """

    convention: str
    dtype: str
    scale: float
    seed: int
    error: float | None
    output_rms: float | None
    well_rounded: float
    output_dtype: str


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def where(self, convention: str, dtype: str, scale: float) -> list[Outcome]:
        """The outcomes of one cell of the table, one for each seed."""
        key = (convention, dtype, scale)
        return [o for o in self.outcomes if (o.convention, o.dtype, o.scale) == key]

    def verdict(self, convention: str, dtype: str, scale: float) -> str:
        """What comes out, in a word: "right", "0", "not finite", or the rms of the output."""
        found = self.where(convention, dtype, scale)
        sizes = [o.output_rms for o in found if o.output_rms is not None]
        errors = [o.error for o in found if o.error is not None]
        if len(sizes) < len(found):
            return "not finite"
        if max(sizes) == 0:
            return "0"
        # 4 roundings of a bfloat16 number are three percent
        if max(errors) < max(0.01, 4 * torch.finfo(DTYPES[dtype]).eps):
            return "right"
        return f"rms {sorted(sizes)[len(sizes) // 2]:.1g}"


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


def _measure(name: str, dtype: str, scale: float, seed: int, config: Config) -> Outcome:
    convention = CONVENTIONS[name]
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(config.rows, config.features, generator=generator, dtype=torch.float64)
    x = (rows * scale).to(DTYPES[dtype])
    weight = 1 + 0.2 * torch.randn(config.features, generator=generator, dtype=torch.float64)
    stored = (weight - convention.weight_offset).to(DTYPES[dtype])
    y = convention.apply(x, (config.features,), stored)
    effective = stored.double() + convention.weight_offset
    rounded = _exact(x, effective, convention).to(y.dtype)
    finite = bool(y.isfinite().all())
    exact = _exact(x, effective, None)
    return Outcome(
        name,
        dtype,
        scale,
        seed,
        ((y.double() - exact).abs().max() / exact.abs().max()).item() if finite else None,
        (y.double() / effective).square().mean().sqrt().item() if finite else None,
        (y == rounded).double().mean().item(),
        str(y.dtype).removeprefix("torch."),
    )


def run(config: Config) -> Result:
    """Put every convention through every dtype and size."""
    return Result(
        tuple(
            _measure(name, dtype, scale, seed, config)
            for name in config.conventions
            for dtype in config.dtypes
            for scale in config.scales
            for seed in config.seeds
        )
    )
