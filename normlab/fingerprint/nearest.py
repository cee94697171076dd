"""The layer of torch that comes nearest, if its outputs are the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normlab.fingerprint.conventions import ReadEps
from normlab.fingerprint.report import Fingerprint
from normlab.fingerprint.torch_layers import (
    Candidate,
    Tracking,
    candidates,
    reproduces,
    state_for,
)
from normlab.probing.groups import Groups
from normlab.probing.measurements import Affine, fit_affine
from normlab.probing.probe import Probe

__all__ = ["Findings", "name_nearest"]


@dataclass(frozen=True)
class Findings:
    """What was measured, as far as a constructor needs it.

    Attributes:
        layer: with parameters of their own dtype, and the shape of the probing.
        probe: in the dtype of the probing.
        real_shape: that was asked about.
        groups: cells that share statistics.
        affine: fit at large inputs, with randomized parameters.
        own: parameters as they came.
        random: parameters as they were randomized.
        eps: what came of measuring it.
        has_weight: whether there are factors.
        has_bias: whether there are summands.
        tracking: running statistics that move as torch's do.
    """

    layer: Probe
    probe: Probe
    real_shape: tuple[int, ...]
    groups: Groups
    affine: Affine
    own: dict[str, Tensor]
    random: dict[str, Tensor]
    eps: ReadEps
    has_weight: bool
    has_bias: bool
    tracking: Tracking | None


def name_nearest(found: Findings, report: Fingerprint) -> None:
    """Fill `nearest_torch`, `equivalents` and what :meth:`Fingerprint.to_torch` needs.

    Args:
        found: what was measured.
        report: with all other fields filled.
    """
    obstacle = _obstacle(found, report)
    eps = found.eps.value
    if obstacle or eps is None:
        report.reasons["nearest_torch"] = obstacle or "eps could not be told"
        return
    single = torch.finfo(torch.float32).eps
    own = found.eps.follows_dtype and math.isclose(eps, single, rel_tol=1e-3)
    settings: dict[str, Any] = {
        "centered": found.affine.centered,
        "eps": None if own and not found.affine.centered else eps,
        "has_weight": found.has_weight,
        "has_bias": found.has_bias,
        "running": found.tracking,
        "visible": [axis for axis, size in enumerate(found.probe.shape) if size > 1],
    }
    here = candidates(found.probe.shape, found.groups, **settings)
    there = candidates(found.real_shape, found.groups, **settings)
    there = [c for c in there if c.family in {h.family for h in here}]
    passed, why = [], "torch has no layer that takes statistics over these axes"
    for candidate in here:
        reason = _compare(found, candidate)
        if reason is None:
            passed.append(candidate.family)
        else:
            why = f"{candidate.text} comes nearest, but {reason}"
    ranked = sorted(
        (c for c in there if c.family in passed), key=lambda c: c.family != report.family
    )
    if not ranked or (report.family is None):
        report.reasons["nearest_torch"] = why
        return
    report.nearest_torch = ranked[0].text
    for other in ranked[1:]:
        report.equivalents += [other.family, other.text]
    report.state = _own_state(found, ranked[0])


def _obstacle(found: Findings, report: Fingerprint) -> str | None:
    if report.divisor == "n-1":
        return "no layer of torch divides by n-1 in its output"
    if found.eps.value and report.eps_placement != "inside":
        return f"no layer of torch has eps as {report.eps_placement}"
    if report.running_statistics is None:
        return report.reasons["running_statistics"]
    if report.running_statistics and found.tracking is None:
        return "the running statistics do not move as torch's do"
    return None


def _compare(found: Findings, candidate: Candidate) -> str | None:
    root = math.sqrt(found.eps.value or 1e-6)
    dtype = torch.float32 if found.eps.follows_dtype else found.probe.dtype
    probe = found.layer.at(dtype)
    probe.assign(found.random)
    state = state_for(
        candidate, found.affine.factor, found.affine.summand, probe=probe, running=found.tracking
    )
    exact = dtype in (torch.float64, torch.float32)
    rounding = 200 * max(found.affine.error, torch.finfo(dtype).eps)
    return reproduces(
        candidate,
        state,
        probe,
        tolerance=max(1e-6, rounding, 3 * found.eps.doubt) if exact else 3e-2,
        scales=(1.0, root, 100.0),
        running=found.tracking is not None,
    )


def _own_state(found: Findings, candidate: Candidate) -> dict[str, Tensor]:
    """What `to_torch` needs: the layer's own parameters, not the randomized ones."""
    own = found.layer.at(found.probe.dtype)
    own.assign(found.own)
    fits = fit_affine(own, found.groups)
    fit = next(f for f in fits if f.centered == found.affine.centered)
    state = state_for(candidate, fit.factor, fit.summand, probe=own, running=found.tracking)
    return {k: v.to(torch.float32) for k, v in state.items()}
