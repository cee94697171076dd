"""What a norm multiplies by, adds, and hides in its root: measured from its outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from normlab.checks.probing.groups import Groups
from normlab.checks.probing.layer import ForeignLayer

LARGE = 1e8  # so large that no eps is seen, and its square fits float32
_PLACES: tuple[Literal["inside", "outside", "clamp"], ...] = ("inside", "outside", "clamp")


@dataclass(frozen=True)
class Affine:
    """The outputs at large inputs: `factor` × standardized input + `summand`."""

    centered: bool  #: whether the mean is subtracted
    factor: Tensor  #: in the shape of the input
    summand: Tensor  #: in the shape of the input
    error: float  #: largest relative misfit


@dataclass(frozen=True)
class Eps:
    """A constant in the root."""

    value: float  #: in the units of x² ("outside": of x), for a mean square with divisor n
    #: "inside", "outside", "clamp", or None where it is all the same
    placement: Literal["inside", "outside", "clamp"] | None
    uncertainty: float  #: relative


@dataclass(frozen=True)
class Model:
    """What the layer is taken to compute, to be compared with what it does."""

    groups: Groups
    affine: Affine
    eps: Eps

    def shrink(self, var: Tensor) -> Tensor:
        """Size of the normalized input: 1 without eps."""
        return shrink(var, self.eps.value, self.eps.placement or "inside")

    def __call__(self, x: Tensor) -> Tensor:
        """The output in float64."""
        x_hat, var = self.groups.standardize(x, centered=self.affine.centered)
        return self.affine.factor * x_hat * self.shrink(var) + self.affine.summand

    def with_affine(self, factor: Tensor, summand: Tensor) -> Model:
        """The same norm with other weights and biases."""
        return replace(self, affine=replace(self.affine, factor=factor, summand=summand))


def shrink(var: Tensor, eps: float, placement: str) -> Tensor:
    """Root of the mean square over what is divided by in its place."""
    root = var.sqrt()
    if placement == "inside":
        return root / (var + eps).sqrt()
    if placement == "outside":
        return root / (root + eps)
    return root / root.clamp_min(math.sqrt(eps))


def eps_in_root(root: Tensor, var: Tensor, placement: str) -> Tensor:
    """The eps that makes the root of a mean square come out as `root`."""
    if placement == "inside":
        return root.square() - var
    return root - var.sqrt() if placement == "outside" else root.square()


def fit_affine(
    layer: ForeignLayer,
    groups: Groups,
    centered: bool | None = None,
    *,
    scale: float = LARGE,
    mixed: bool = False,
) -> Affine:
    """Fit the outputs at large inputs.

    Each input is given with its negative: half their sum is the summand, half their difference is
    the factor times the standardized input.

    Args:
        centered: subtract the mean; None tries both and takes what fits better.
        scale: root mean square of the inputs.
        mixed: center only the numerator, or only the root.
    """
    inputs, odd, even = [], [], []
    for seed in range(21, 26):
        x = scale * (layer.input(seed) + 0.5 + (seed % 3))
        x = x.to(layer.dtype).double()  # as the layer receives it
        parts = layer.odd_even_parts(x)
        inputs.append(x)
        odd.append(parts[0])
        even.append(parts[1])
    summand = torch.stack(even).mean(0)
    size = torch.stack(odd).abs().max() + summand.abs().max()
    uneven = max(float((e - summand).abs().max()) for e in even)
    fits = []
    for center in (True, False) if centered is None else (centered,):
        root = center != mixed
        hats = [groups.standardize(x, centered=center, centered_root=root)[0] for x in inputs]
        pairs = list(zip(odd, hats, strict=True))
        factor = sum((o * h for o, h in pairs), torch.zeros(())) / sum(h * h for h in hats)
        misfit = max(float((o - factor * h).abs().max()) for o, h in pairs)
        error = max(misfit, uneven) / max(float(size), 1e-30)
        fits.append(Affine(center, factor, summand, math.inf if math.isnan(error) else error))
    return min(fits, key=lambda fit: fit.error)


def _ratios(
    layer: ForeignLayer, groups: Groups, affine: Affine, scale: float, seed: int
) -> tuple[Tensor, Tensor]:
    """How much smaller the normalized input is than without eps, per group; its mean square."""
    x = (scale * layer.input(seed)).to(layer.dtype).double()
    x_hat, var = groups.standardize(x, centered=affine.centered)
    expected = affine.factor * x_hat
    got = layer.measure(x) - affine.summand
    ratio = groups.mean(got * expected) / groups.mean(expected.square())
    return _one_each(groups, ratio), _one_each(groups, var)


def _one_each(groups: Groups, values: Tensor) -> Tensor:
    view, dims = groups.view(values)
    return view.amax(dims).flatten() if dims else view.flatten()


def _eps_from(ratio: Tensor, var: Tensor, placement: str) -> tuple[float, float]:
    """The eps that each group asks for: their median, and their relative spread."""
    visible = (ratio > 0.02) & (ratio < 0.98)
    v = var[visible]
    middle = float(eps_in_root(v.sqrt() / ratio[visible], v, placement).median())
    predicted = shrink(var, middle, placement)
    # over all groups, those that eps leaves alone included: a clamp has a corner
    return middle, float((predicted - ratio).abs().max())


def measure_eps(layer: ForeignLayer, groups: Groups, affine: Affine, noise: float) -> Eps | str:
    """Shrink the input until the output shrinks, too: the eps, or why it cannot be measured.

    `noise` is the relative error of the outputs.
    """

    def ratios(scale: float, seed: int = 31) -> tuple[Tensor, Tensor]:
        return _ratios(layer, groups, affine, scale, seed)

    scale = _transition(ratios, layer.dtype, exact=noise < 1e-10)
    if scale is None:
        if not bool(layer.measure(torch.zeros(layer.shape)).isfinite().all()):
            return Eps(0.0, None, 0.0)
        return (
            "too small to see: the output keeps its size down to the smallest inputs that the "
            "layer's precision can square, yet a zero input gives a finite output"
        )
    sweep = [
        ratios(scale * step, seed) for step in (30.0, 10.0, 3.0, 1.0, 0.3, 0.1) for seed in (31, 32)
    ]
    ratio, var = (torch.cat(parts) for parts in zip(*sweep, strict=True))
    tried = []
    for placement in _PLACES:
        value, misfit = _eps_from(ratio, var, placement)
        tried.append((misfit if math.isfinite(misfit) else math.inf, placement, value))
    tried.sort()
    (misfit, placement, value), (second, _, _) = tried[:2]
    if not (misfit <= min(max(1e-6, 100 * noise), 0.05) and second > 5 * misfit):
        return (
            "small inputs do give smaller outputs, but not as an eps inside the root, outside of "
            f"it or as a clamp would (misfit {misfit:.1g})"
        )
    count = len(ratio)
    uncertainty = max(1e-9 if noise < 1e-10 else 1e-6, 6 * misfit / math.sqrt(count))
    return Eps(value, placement, uncertainty)


def _transition(
    ratios: Callable[[float], tuple[Tensor, Tensor]], dtype: torch.dtype, *, exact: bool
) -> float | None:
    """Scale of the input at which the output begins to shrink."""
    for scale in _scales(dtype, exact=exact):
        ratio, var = ratios(scale)
        if not bool((var > 0).all()):
            return None
        middle = float(ratio.median())
        if not math.isfinite(middle) or middle > 1.5:
            return None
        if middle < 0.9:
            return scale
    return None


def _scales(dtype: torch.dtype, *, exact: bool) -> Iterator[float]:
    """Powers of ten, down to where squares leave the range of the computation."""
    lowest = -4 if dtype == torch.float16 else -140 if exact else -17
    exponents = [*range(2 if dtype == torch.float16 else 6, -21, -1), *range(-30, -150, -10)]
    yield from (10.0**k for k in exponents if k >= lowest)


def shortest(value: float, uncertainty: float) -> float:
    """The decimal with the fewest digits within the uncertainty.

    Example:
        >>> shortest(1.0000003e-5, 1e-6)
        1e-05
    """
    for digits in range(17):
        short = float(f"{value:.{digits}e}")
        if abs(short - value) <= uncertainty * abs(value):
            return short
    return value
