"""The layer of torch that comes nearest, if its outputs are the same."""

from __future__ import annotations

import torch

from normlab.fingerprint.findings import Findings
from normlab.fingerprint.torch_layers import State, candidates, compare, state_for
from normlab.probing.measurements import fit_affine


def name_nearest(found: Findings) -> None:
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
    state: State = state_for(found, ranked[0], fit, own)
    report.state = {name: value.to(torch.float32) for name, value in state.items()}


def _with_function(found: Findings, text: str) -> str:
    return text if found.following is None else f"Sequential({text}, {found.following.layer})"


def _obstacle(found: Findings) -> str | None:
    report = found.report
    if report.modulated:
        return "no layer of torch takes its factors from a condition"
    if found.following is not None and found.following.layer is None:
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
