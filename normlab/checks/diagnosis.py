"""From a wrong output to the mistake, or the two or three mistakes at once, that explain it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normlab.checks.candidates import Diagnosis, forward_candidates, other_axes, other_groups
from normlab.checks.formula import Formula
from normlab.checks.probing.measurements import eps_in_root, shortest
from normlab.checks.tolerances import max_error

_SINGLE = 1e-5  # relative error that a few roundings to float32 may leave
_HALF = 0.02  # relative error that a few roundings to 16 bits may leave
_ROUNDING = 32 * torch.finfo(torch.float32).eps  # of a wrong output that may be large
_PROBE = 1e-3  # relative error of an output near eps that a diagnosis may leave


@dataclass
class Evidence:
    """A call and what came of it, in float64."""

    formula: Formula  #: right formula, with the axes of this call
    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    got: Tensor  #: what the layer returned: its output, or its gradient by the input
    budget: float  #: largest error allowed
    dy: Tensor | None = None  #: gradient by the output, for gradients
    probe: bool = False  #: a call made only to see eps; its error is judged by `_PROBE`


def explains(changes: dict[str, Any], evidence: Sequence[Evidence]) -> bool:
    """Whether the formula with these changes gives every observed output."""
    for e in evidence:
        value = e.formula.replace(**changes)(e.x, e.weight, e.bias)
        scale = float(value.abs().max())
        allowed = _PROBE * scale if e.probe else 4 * max(e.budget, _ROUNDING * scale)
        if value.shape != e.got.shape or not max_error(e.got, value) <= allowed:
            return False
    return True


def _estimate_eps(changes: dict[str, Any], evidence: Sequence[Evidence]) -> float | None:
    """The eps that the smallest input shows, if the rest is as `changes` say."""
    probes = [e for e in evidence if e.probe and e.got.abs().max() > 0]
    if not probes or changes.get("root", "root") != "root":
        return None
    e = min(probes, key=lambda p: float(p.x.abs().max()))
    formula = e.formula.replace(**changes)
    if formula.affine_order in ("no weight", "none") or e.weight is None:
        x_hat = e.got
    else:
        x_hat = e.got / (formula.weight_offset + e.weight).view(formula.parameter_view(e.x))
    mean, var, count = formula.statistics(e.x)
    view, dims = formula.view(e.x)
    numerator = formula.numerator(view, mean)
    x_hat = x_hat.reshape(view.shape)
    root = numerator.square().sum(dims, keepdim=True) / (numerator * x_hat).sum(dims, keepdim=True)
    value = float(eps_in_root(root, var, formula.eps_placement).median())
    if not math.isfinite(value) or value <= 1e-3 * float(var.median()):
        return 0.0
    if formula.eps_placement == "clamp" and formula.clamp_of != "variance":
        return math.sqrt(value * (count if formula.clamp_of == "norm" else 1))
    return value


def _search(
    atoms: Sequence[Diagnosis],
    evidence: Sequence[Evidence],
    cost: int,
    base: Diagnosis | None = None,
) -> Diagnosis | None:
    """`cost` mistakes, besides `base`, that explain everything; another eps counts as one."""
    right = evidence[0].formula
    for size in (cost, cost - 1):
        for chosen in itertools.combinations(atoms, size) if size >= 0 else ():
            together = chosen if base is None else (base, *chosen)
            if any(a.excludes(b) for a, b in itertools.combinations(together, 2)):
                continue
            whole = functools.reduce(operator.add, together) if together else None
            changes = {} if whole is None or whole.changes is None else whole.changes
            if size == cost:
                if explains(changes, evidence):
                    return whole
                continue
            seen = _estimate_eps(changes, evidence)
            # a number with few digits is the likelier one
            for eps in () if seen is None else (shortest(seen, 0.01), seen):
                differs = abs(eps - right.eps) > 0.01 * right.eps
                if differs and explains({**changes, "eps": eps}, evidence):
                    shown = f"{eps:.3g}" if eps else "0"
                    text = f"eps is {shown}, expected {right.eps:.3g}"
                    other = Diagnosis("other_eps", text, {"eps": eps})
                    return other if whole is None else whole + other
    return None


def explain_forward(evidence: Sequence[Evidence]) -> Diagnosis:
    """Name the mistakes whose formula gives all the observed outputs.

    Among them are those that are right, so that a candidate must explain both, and those of probes
    by very small inputs, which show where eps is.
    """
    seen = [e for e in evidence if not e.probe]
    if any(not e.got.isfinite().all() for e in seen):
        return Diagnosis(None, "the output has entries that are not finite")
    evidence = [e for e in evidence if e.got.isfinite().all()]
    # what is most wrong comes first, so that most candidates fall at the first call
    evidence = sorted(evidence, key=_excess, reverse=True)
    right = evidence[0].formula
    atoms = forward_candidates(right)
    if all(torch.equal(e.got, e.x.to(e.got.dtype)) for e in seen):
        return Diagnosis("identity", "the input is returned as it is: nothing is normalized")
    for cost in (1, 2, 3):
        found = _search(atoms, evidence, cost)
        if found is not None:
            return found
    found = _explain_place(atoms, evidence)
    if found is not None:
        return found
    worst = max(_relative_error(e) for e in seen)
    if worst < _SINGLE and all(e.got.dtype == torch.float64 for e in seen):
        text = "the output is right to six or seven digits: something is computed in float32"
        return Diagnosis(None, f"{text}. Cast up alone, and not float64 down")
    if worst < _HALF:
        text = "the output is right to two or three digits: something is computed in half precision"
        return Diagnosis("half_precision_statistics", text)
    return Diagnosis(None, "no known mistake explains the output")


def _relative_error(e: Evidence) -> float:
    right = e.formula(e.x, e.weight, e.bias)
    return max_error(e.got, right) / float(right.abs().max())


def _explain_place(atoms: Sequence[Diagnosis], evidence: Sequence[Evidence]) -> Diagnosis | None:
    """Statistics over other axes or groups, alone or with one more mistake."""

    def kind(e: Evidence) -> tuple[int, int, int]:
        return e.x.dim(), e.formula.normalized_ndim, e.formula.num_groups

    wrong = {kind(e): e for e in evidence if _excess(e) > 1}
    for key, example in wrong.items():
        same = [e for e in evidence if kind(e) == key]
        places = [
            *other_groups(example.formula, example.x),
            *other_axes(example.formula, example.x),
        ]
        for cost in (0, 1):
            for place in places:
                found = _search(atoms, same, cost, place)
                if found is not None:
                    # it describes inputs of this rank alone
                    return dataclasses.replace(found, changes=None)
    return None


def _excess(e: Evidence) -> float:
    """Error in units of what is allowed."""
    if e.probe:
        return 0.0
    return max_error(e.got, e.formula(e.x, e.weight, e.bias)) / e.budget
