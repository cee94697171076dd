"""The layer of torch that comes nearest: those that might, and the comparison that decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.fingerprint.evidence import Evidence
from normlab.checks.fingerprint.report import load_state
from normlab.checks.probing.layer import ForeignLayer
from normlab.checks.probing.measurements import Affine, fit_affine
from normlab.checks.probing.state import tensors_of

State = dict[str, Tensor]


@dataclass(frozen=True)
class Candidate:
    """A constructor of torch, by family, and the axes along which its weight varies."""

    family: str
    text: str
    parameter_axes: tuple[int, ...]


def _construct(name: str, sizes: Sequence[int], wanted: dict[str, Any]) -> str:
    """A constructor with those of some options that it has and that are not its defaults."""
    known = signature(getattr(nn, name)).parameters
    options = (f"{k}={v!r}" for k, v in wanted.items() if k in known and v != known[k].default)
    return f"{name}({', '.join((*map(repr, sizes), *options))})"


def candidates(found: Evidence, shape: Sequence[int]) -> list[Candidate]:
    """All constructors whose statistics are taken over the groups of an input of `shape`."""
    groups, running, eps = found.groups, found.running, found.eps_value
    shape, ndim = tuple(shape), len(shape)
    # of axes of size 1 it is not known whether they belong to a group
    wide = {axis for axis, size in enumerate(found.probe.shape) if size > 1}
    over = set(groups.reduced)
    centered, has_weight, has_bias = found.affine.centered, found.has_weight, found.has_bias
    affine = has_weight or has_bias
    if found.eps_follows_dtype and not centered:
        single = torch.finfo(torch.float32).eps
        eps = None if math.isclose(eps or 0.0, single, rel_tol=1e-3) else eps
    wanted: dict[str, Any] = {} if eps is None else {"eps": eps}
    wanted |= {"elementwise_affine": affine, "affine": affine}
    if running is not None:
        wanted["momentum"] = running.momentum
    if has_weight and not has_bias:
        wanted["bias"] = False  # of the channel norms, an argument of torch 2.13 and later
    wanted["track_running_stats"] = running is not None
    named = []

    def add(family: str, name: str, sizes: Sequence[Any], axes: Sequence[int]) -> None:
        named.append(Candidate(family, _construct(name, sizes, wanted), tuple(axes)))

    # the trailing axes, for layer and RMS norm
    start = ndim
    while start and (start - 1 in over or start - 1 not in wide):
        start -= 1
    start = next((a for a in range(start, ndim) if a in over), ndim)
    if groups.split is None and over and set(range(start, ndim)) & wide == over:
        sizes = shape[start] if start == ndim - 1 else shape[start:]
        if centered:
            add("layer_norm", "LayerNorm", [sizes], range(start, ndim))
        elif not has_bias:
            add("rms_norm", "RMSNorm", [sizes], range(start, ndim))
    if not centered or ndim < 2 or (eps is None):
        return named
    channels, positions = shape[1], set(range(2, ndim)) & wide
    rank = {2: "1d", 3: "1d", 4: "2d", 5: "3d"}.get(ndim)
    if over == (positions | {0}) & wide and 0 in over and groups.split is None and rank:
        add("batch_norm", f"BatchNorm{rank}", [channels], [1])
    if over == positions and ndim > 2 and groups.split is None and rank:
        add("instance_norm", f"InstanceNorm{rank}", [channels], [1])
    if running is None and 0 not in over and over - {1} == positions:
        size = groups.block if groups.split == 1 else channels if 1 in over else 1
        add("group_norm", "GroupNorm", [channels // size, channels], [1])
    return named


def along(values: Tensor, axes: Sequence[int]) -> Tensor:
    """The values along some axes, at index 0 of the others."""
    index = tuple(slice(None) if a in axes else 0 for a in range(values.dim()))
    return values[index]


def state_for(found: Evidence, candidate: Candidate, affine: Affine, probe: ForeignLayer) -> State:
    """What a layer of torch must hold to agree with a copy of the one that was measured."""
    state = {
        "weight": along(affine.factor, candidate.parameter_axes),
        "bias": along(affine.summand, candidate.parameter_axes),
    }
    running = found.running
    if running is not None:
        buffers = tensors_of(probe.modules[0])
        state["running_mean"] = buffers[running.mean].detach().cpu()
        state["running_var"] = buffers[running.var].detach().cpu()
        seen = round(1 / running.rates[0]) - 1 if running.is_average else 0
        state["num_batches_tracked"] = torch.tensor(seen)
    return state


def compare(found: Evidence, candidate: Candidate) -> str | None:
    """What differs between a layer of torch and the one that was measured.

    None where all outputs agree, in training and in evaluation.
    """
    dtype = torch.float32 if found.eps_follows_dtype else found.probe.dtype
    probe, keep = found.copy(found.random, dtype), found.running is not None
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    layer: nn.Module = eval(candidate.text, dict(vars(nn))).to(wide)  # eps may follow the dtype
    load_state(layer, state_for(found, candidate, found.affine, probe))
    rounding = 200 * max(found.affine.error, torch.finfo(dtype).eps)
    exact = dtype in (torch.float64, torch.float32)
    tolerance = max(1e-6, rounding, 3 * found.eps_doubt) if exact else 3e-2

    def differs(x: Tensor, *, training: bool, keep: bool) -> bool:
        x = x.to(dtype)
        expected = layer.train(training)(x.to(wide)).detach().double()
        got = probe(x, training=training, keep=keep).detach().cpu().double()
        limit = tolerance * max(float(expected.abs().max()), 1e-30)
        return not bool(((got - expected).abs() <= limit).all())

    for k, scale in enumerate((1.0, math.sqrt(found.eps_value or 1e-6), 100.0)):
        x = scale * (probe.input(51 + k) + (k % 2))
        if differs(x, training=True, keep=keep):
            return f"its outputs differ at inputs of size {scale:.0e}"
        if differs(x, training=False, keep=False):
            when = " after steps of training" if keep else ""
            return f"its outputs in evaluation mode differ{when}"
    return None


def name_nearest(found: Evidence) -> None:
    """Fill `nearest_torch`, `equivalents` and what :meth:`Fingerprint.to_torch` needs."""
    report = found.report
    obstacle = _obstacle(found)
    if obstacle:
        report.reasons["nearest_torch"] = obstacle
        return
    passed, why = [], "torch has no layer that takes statistics over these axes"
    for candidate in candidates(found, found.probe.shape):
        reason = compare(found, candidate)
        if reason is None:
            passed.append(candidate.family)
        else:
            why = f"{candidate.text} comes nearest, but {reason}"
    there = (c for c in candidates(found, found.real_shape) if c.family in passed)
    ranked = sorted(there, key=lambda c: c.family != report.family)
    if not ranked or report.family is None:
        report.reasons["nearest_torch"] = why
        return
    report.nearest_torch = _with_function(found, ranked[0].text)
    for other in ranked[1:]:
        report.equivalents += [other.family, _with_function(found, other.text)]
    own = found.copy(found.own)  # not the randomized parameters
    fit = fit_affine(own, found.groups, found.affine.centered)
    state = state_for(found, ranked[0], fit, own)
    report.state = {name: value.to(torch.float32) for name, value in state.items()}


def _with_function(found: Evidence, text: str) -> str:
    return text if found.behind is None else f"Sequential({text}, {found.behind.layer})"


def _obstacle(found: Evidence) -> str | None:
    report = found.report
    if report.modulated:
        return "no layer of torch takes its factors from a condition"
    if found.behind is not None and found.behind.layer is None:
        return "torch has no layer for the function that follows"
    if found.is_scalar:
        return "no layer of torch has one number as its weight"
    if found.spread != "mean square":
        return "no layer of torch leaves the n of the mean square out"
    if report.divisor == "n-1":
        return "no layer of torch divides by n-1 in its output"
    if found.eps_value and report.eps_placement != "inside":
        return f"no layer of torch has eps as {report.eps_placement}"
    if report.running_statistics is None:
        return report.reasons["running_statistics"]
    if report.running_statistics and found.running is None:
        return "the running statistics do not move as torch's do"
    return "eps could not be told" if found.eps_value is None else None
