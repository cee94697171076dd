"""Layers of torch that might give the same outputs, and the comparison that decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature

import torch
from torch import Tensor, nn

from normlab.fingerprint.report import load_state
from normlab.probing.groups import Groups
from normlab.probing.probe import Probe
from normlab.probing.running import find_running
from normlab.probing.state import tensors_of

__all__ = ["Candidate", "Tracking", "candidates", "read_tracking", "reproduces", "state_for"]


@dataclass(frozen=True)
class Tracking:
    """Tracking statistics as they were seen to move.

    Attributes:
        mean: name of the buffer.
        var: name of the buffer.
        momentum: weight of a new batch; None for a cumulative average.
        steps: batches that a cumulative average had seen before it was probed.
    """

    mean: str
    var: str
    momentum: float | None
    steps: int


@dataclass(frozen=True)
class Candidate:
    """A constructor of torch, by family, and the axes along which its weight varies."""

    family: str
    name: str
    first: str
    parameter_axes: tuple[int, ...]
    options: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{self.name}({', '.join((self.first, *self.options))})"


def candidates(
    shape: Sequence[int],
    groups: Groups,
    *,
    centered: bool,
    eps: float | None,
    has_weight: bool,
    has_bias: bool,
    running: Tracking | None,
    visible: Sequence[int],
) -> list[Candidate]:
    """All constructors whose statistics are taken over these groups.

    Args:
        shape: of the input.
        groups: cells that share statistics.
        centered: whether the mean is subtracted.
        eps: None for RMSNorm's own, which follows the dtype.
        has_weight: whether the factor is not 1.
        has_bias: whether the summand is not 0.
        running: running statistics, or None.
        visible: axes of which it is known whether they belong to a group, as those of size 1
            are not.
    """
    shape, ndim = tuple(shape), len(shape)
    wide, over = set(visible), set(groups.reduced)
    affine = has_weight or has_bias
    found = []

    def options(default: float, keyword: str, by_default: bool) -> list[str]:
        parts = [] if eps is None or eps == default else [f"eps={eps!r}"]
        return parts + ([] if affine == by_default else [f"{keyword}={affine}"])

    # the trailing axes, for layer and RMS norm
    start = ndim
    while start and (start - 1 in over or start - 1 not in wide):
        start -= 1
    start = next((a for a in range(start, ndim) if a in over), ndim)
    if groups.split is None and over and set(range(start, ndim)) & wide == over:
        trailing = tuple(range(start, ndim))
        sizes = shape[start:]
        first = repr(sizes[0]) if len(sizes) == 1 else repr(sizes)
        if centered:
            parts = options(1e-5, "elementwise_affine", True)
            parts += ["bias=False"] if has_weight and not has_bias else []
            found.append(Candidate("layer_norm", "LayerNorm", first, trailing, tuple(parts)))
        elif not has_bias:
            parts = [] if eps is None else [f"eps={eps!r}"]
            parts += [] if affine else ["elementwise_affine=False"]
            found.append(Candidate("rms_norm", "RMSNorm", first, trailing, tuple(parts)))
    if not centered or ndim < 2 or (eps is None):
        return found
    channels, positions = repr(shape[1]), set(range(2, ndim)) & wide
    rank = {2: "1d", 3: "1d", 4: "2d", 5: "3d"}.get(ndim)
    slim = has_weight and not has_bias and "bias" in signature(nn.GroupNorm).parameters
    without_bias = ["bias=False"] if slim else []  # an argument of torch 2.13 and later
    moving = [] if running is None or running.momentum == 0.1 else [f"momentum={running.momentum}"]
    if over == (positions | {0}) & wide and 0 in over and groups.split is None and rank:
        parts = options(1e-5, "affine", True) + moving
        parts += without_bias + ([] if running else ["track_running_stats=False"])
        found.append(Candidate("batch_norm", f"BatchNorm{rank}", channels, (1,), tuple(parts)))
    if over == positions and ndim > 2 and groups.split is None and rank:
        parts = options(1e-5, "affine", False) + moving
        parts += without_bias + (["track_running_stats=True"] if running else [])
        found.append(
            Candidate("instance_norm", f"InstanceNorm{rank}", channels, (1,), tuple(parts))
        )
    if running is None and 0 not in over and over - {1} == positions:
        size = groups.block if groups.split == 1 else shape[1] if 1 in over else 1
        first = f"{shape[1] // size}, {shape[1]}"
        parts = options(1e-5, "affine", True) + without_bias
        found.append(Candidate("group_norm", "GroupNorm", first, (1,), tuple(parts)))
    return found


def along(values: Tensor, axes: Sequence[int]) -> Tensor:
    """The values along some axes, at index 0 of the others."""
    index = tuple(slice(None) if a in axes else 0 for a in range(values.dim()))
    return values[index]


def state_for(
    candidate: Candidate,
    factor: Tensor,
    summand: Tensor,
    *,
    probe: Probe | None = None,
    running: Tracking | None = None,
) -> dict[str, Tensor]:
    """What a layer of torch must hold to agree with the one that was measured."""
    state = {
        "weight": along(factor, candidate.parameter_axes),
        "bias": along(summand, candidate.parameter_axes),
    }
    if running is not None and probe is not None:
        buffers = tensors_of(probe.modules[0])
        state["running_mean"] = buffers[running.mean].detach().cpu()
        state["running_var"] = buffers[running.var].detach().cpu()
        state["num_batches_tracked"] = torch.tensor(running.steps)
    return state


def reproduces(
    candidate: Candidate,
    state: dict[str, Tensor],
    probe: Probe,
    *,
    tolerance: float,
    scales: Sequence[float],
    running: bool,
) -> str | None:
    """Compare a layer of torch with the probe, in training and in evaluation.

    Args:
        candidate: the constructor, for inputs of the probe's shape.
        state: what the layer is to hold.
        probe: the layer under study.
        tolerance: largest error, relative to the largest output.
        scales: root mean squares of the inputs.
        running: also compare evaluation after two steps of training; changes the probe.

    Returns:
        None where all outputs agree, else what differs.
    """
    exact = torch.float64 if probe.dtype == torch.float64 else torch.float32
    layer: nn.Module = eval(candidate.text, dict(vars(nn))).to(exact)  # eps may follow the dtype
    load_state(layer, state)

    def differs(x: Tensor, training: bool, keep: bool) -> bool:
        x = x.to(probe.dtype)
        expected = layer.train(training)(x.to(exact)).detach().double()
        got = probe(x, training=training, keep=keep).detach().cpu().double()
        limit = tolerance * max(float(expected.abs().max()), 1e-30)
        return not bool(((got - expected).abs() <= limit).all())

    for k, scale in enumerate(scales):
        x = scale * (probe.input(51 + k) + (k % 2))
        if differs(x, True, running):
            return f"its outputs differ at inputs of size {scale:.0e}"
        if differs(x, False, False):
            when = " after steps of training" if running else ""
            return f"its outputs in evaluation mode differ{when}"
    return None


def read_tracking(probe: Probe) -> Tracking | None:
    """How the layer's buffers follow mean and variance; None where no layer of torch does so."""
    found = find_running(probe)
    if found is None:
        return None
    first, second = found.rates
    if math.isclose(first, second, rel_tol=1e-4):
        momentum = float(f"{first:.6g}") if first < 0.9999999 else 1.0
        return Tracking(found.mean, found.var, momentum, 0)
    if math.isclose(second, first / (1 + first), rel_tol=1e-4):
        return Tracking(found.mean, found.var, None, round(1 / first) - 1)
    return None
