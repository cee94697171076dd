"""Which parameter is the weight and which the bias, seen from their effect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from normlab.checks.probing.groups import Groups
from normlab.checks.probing.layer import ForeignLayer
from normlab.checks.probing.measurements import Affine, fit_affine
from normlab.norms import NORMS

Kind = Literal["weight", "bias"]


@dataclass(frozen=True)
class Role:
    """What one parameter does."""

    kind: Kind  #: "weight" multiplies the normalized input, "bias" is added
    axes: tuple[int, ...]  #: of the input, along which the parameter varies
    gain: float  #: size of its effect: 1, or less where the normalized input is smaller
    #: what is added to a weight before it multiplies; None if that is no constant
    offset: float | None


def allowance(error: float) -> float:
    """How far two fitted numbers of size 1 may be apart and still be taken as equal."""
    return max(1e-7, (50 if error < 1e-4 else 4) * error)


def varying_axes(values: Tensor, tolerance: float) -> tuple[int, ...]:
    """Axes along which values differ by more than the tolerance."""
    found = []
    for axis in range(values.dim()):
        spread = values.amax(axis) - values.amin(axis)
        if float(spread.max()) > tolerance:
            found.append(axis)
    return tuple(found)


def constant(values: Tensor, tolerance: float) -> float | None:
    """The one value of a tensor, or None where there are several."""
    if not float(values.max() - values.min()) <= tolerance:  # NaN included
        return None
    return float(values.mean())


def find_kinds(layer: ForeignLayer) -> dict[str, Kind]:
    """Which parameters multiply and which are added: those change the odd part, these the even."""
    x = layer.input(7)
    before = layer.odd_even_parts(x)
    rounding = max(1e-5, 8 * torch.finfo(layer.dtype).eps)
    noise = rounding * sum(float(half.abs().max()) for half in before)
    kinds: dict[str, Kind] = {}
    for name in layer.tensors:
        with layer.moved(name):
            after = layer.odd_even_parts(x)
        odd, even = (float((a - b).abs().max()) > noise for a, b in zip(after, before, strict=True))
        if odd or even:
            kinds[name] = "weight" if odd else "bias"
    return kinds


def find_packed(layer: ForeignLayer, like: str, shape: Sequence[int] | None) -> str:
    """What to do about one parameter that holds weight and bias; empty if there is none."""
    several = [(name, p) for name, p in layer.tensors.items() if p.numel() > 1]
    if len(several) != 1 or several[0][1].dim() != 2 or 2 not in several[0][1].shape:
        return ""
    name, p = several[0]
    axis = 0 if p.shape[0] == 2 else 1
    size = p.shape[1 - axis]
    trial = layer.with_shape(shape or ((5, size) if NORMS[like].trailing else (5, size, 3)))
    if trial.refusal(trial.shape):
        return ""
    x, effects = trial.input(7), []
    before = trial.odd_even_parts(x)
    for row in p.unbind(axis):
        row += 0.5
        both = zip(trial.odd_even_parts(x), before, strict=True)
        effects.append([float((a - b).abs().max()) > 0.1 for a, b in both])
        row -= 0.5
    if sorted(effects) != [[False, True], [True, False]]:
        return ""
    given = "weight, bias" if effects[0] == [True, False] else "bias, weight"
    return (
        f"{name} of shape {tuple(p.shape)} holds weight and bias in one. Pass a function that "
        f"takes them apart, as lambda x, weight, bias: torch.func.functional_call(layer, "
        f"{{{name!r}: torch.stack([{given}], {axis})}}, x)"
    )


def find_roles(layer: ForeignLayer, groups: Groups, affine: Affine) -> dict[str, Role]:
    """Move each weight and bias and see how factors and summands follow."""
    roles = {}
    for name, kind in find_kinds(layer).items():
        value = layer.tensors[name].detach().cpu().double()
        with layer.moved(name) as move:
            after = fit_affine(layer, groups, affine.centered)
        if after.error <= max(100 * affine.error, 1e-9):
            role = _role(kind, value, move, affine, after)
            if role is not None:
                roles[name] = role
    return roles


def _role(kind: Kind, value: Tensor, move: Tensor, before: Affine, after: Affine) -> Role | None:
    d_factor, d_summand = after.factor - before.factor, after.summand - before.summand
    size = max(float(after.factor.abs().max()), float(after.summand.abs().max()), 1.0)
    tolerance = allowance(before.error) * size
    effect, other = (d_factor, d_summand) if kind == "weight" else (d_summand, d_factor)
    if float(effect.abs().max()) <= tolerance or float(other.abs().max()) > tolerance:
        return None
    axes = varying_axes(effect, tolerance)
    view = [size if axis in axes else 1 for axis, size in enumerate(effect.shape)]
    if math.prod(view) != move.numel():
        return None
    gain = constant(effect / move.view(view), 4 * tolerance)
    if gain is None or abs(gain) < tolerance:
        return None
    if kind == "bias":
        return Role(kind, axes, gain, None)
    offset = constant(before.factor / gain - value.view(view), 4 * tolerance / abs(gain))
    return Role(kind, axes, gain, offset)
