"""Which parameter is the weight and which the bias, seen from their effect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from normlab.probing.groups import Groups
from normlab.probing.measurements import Affine, fit_affine
from normlab.probing.probe import Subject

__all__ = ["Role", "allowance", "constant", "find_roles", "varying_axes"]


@dataclass(frozen=True)
class Role:
    """What one parameter does.

    Attributes:
        kind: "weight" multiplies the normalized input, "bias" is added.
        axes: of the input, along which the parameter varies.
        gain: size of its effect: 1, or less where the normalized input is smaller.
        offset: what is added to a weight before it multiplies; None if that is no constant.
    """

    kind: Literal["weight", "bias"]
    axes: tuple[int, ...]
    gain: float
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


def find_roles(
    subject: Subject, shape: Sequence[int], groups: Groups, affine: Affine
) -> dict[str, Role]:
    """Move each parameter and see how factors and summands follow.

    Args:
        subject: the layer.
        shape: of the input.
        groups: cells that share statistics.
        affine: fit with the parameters as they are.
    """
    roles = {}
    for name, tensor in subject.tensors.items():
        g = torch.Generator().manual_seed(7)
        before = tensor.detach().clone()
        move = 0.5 + torch.rand(tensor.shape, generator=g, dtype=torch.float64)
        tensor.copy_((before.cpu().double() + move).to(tensor.device, tensor.dtype))
        move = (tensor.double() - before.double()).cpu()
        after = next(f for f in fit_affine(subject, shape, groups) if f.centered == affine.centered)
        tensor.copy_(before)
        if after.error <= max(100 * affine.error, 1e-9):
            role = _role(before.cpu().double(), move, affine, after)
            if role is not None:
                roles[name] = role
    return roles


def _role(value: Tensor, move: Tensor, before: Affine, after: Affine) -> Role | None:
    d_factor, d_summand = after.factor - before.factor, after.summand - before.summand
    size = max(float(after.factor.abs().max()), float(after.summand.abs().max()), 1.0)
    tolerance = allowance(before.error) * size
    moves_factor = float(d_factor.abs().max()) > tolerance
    moves_summand = float(d_summand.abs().max()) > tolerance
    if moves_factor == moves_summand:  # neither, or both
        return None
    effect = d_factor if moves_factor else d_summand
    axes = varying_axes(effect, tolerance)
    view = [size if axis in axes else 1 for axis, size in enumerate(effect.shape)]
    if math.prod(view) != move.numel():
        return None
    gain = constant(effect / move.view(view), 4 * tolerance)
    if gain is None or abs(gain) < tolerance:
        return None
    if not moves_factor:
        return Role("bias", axes, gain, None)
    offset = constant(before.factor / gain - value.view(view), 4 * tolerance / abs(gain))
    return Role("weight", axes, gain, offset)
