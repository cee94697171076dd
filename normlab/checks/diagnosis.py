"""From a wrong output to the mistake, or the two or three mistakes at once, that explain it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normlab.checks.formula import Formula, default_eps
from normlab.checks.inputs import Evidence, roundings
from normlab.checks.mistakes import MISTAKES, Mistake, choices, structure
from normlab.checks.probing.measurements import eps_in_root, shortest
from normlab.checks.tolerances import HALF, max_error
from normlab.norms import NORMS

_SINGLE = 1e-5  # relative error that a few roundings to float32 may leave
_HALF = 0.02  # relative error that a few roundings to 16 bits may leave
_ROUNDING = 32 * torch.finfo(torch.float32).eps  # of a wrong output that may be large
ONE = "n - 1 = 0, the variance of one value"
_ALONE = ("eps_twice", "padding_in_variance")  # tried without a second mistake
_PROBE = 1e-3  # relative error of an output near eps that a diagnosis may leave


@dataclass(frozen=True)
class Diagnosis:
    """A mistake that explains what was seen."""

    mistake: str | None  #: short name, or None where nothing explains it
    sentence: str  #: for the report
    #: conventions of :class:`Formula` that describe the layer as it is
    changes: dict[str, Any] | None = None

    def __add__(self, other: Diagnosis) -> Diagnosis:
        return Diagnosis(
            f"{self.mistake}+{other.mistake}",
            f"{self.sentence}; {other.sentence}",
            {**(self.changes or {}), **(other.changes or {})},
        )

    def excludes(self, other: Diagnosis) -> bool:
        """Whether both describe the same choice."""
        return bool(set(self.changes or {}) & set(other.changes or {}))


def forward_candidates(right: Formula) -> list[Diagnosis]:
    """Other conventions than the declared ones, and other formulas."""
    found = [_diagnosis(m, right) for m in (*choices(right), *structure(right))]
    if right.fixed is None:
        return found
    usual = (eps for eps in (0.0, default_eps(right.like)) if eps != right.eps)
    own = _diagnosis(MISTAKES["frozen_uses_batch"], right)
    return [own, *(_other_eps(right, eps) for eps in usual), *found]


def _diagnosis(mistake: Mistake, right: Formula) -> Diagnosis:
    return Diagnosis(mistake.name, mistake.sentence(right), dict(mistake.changes))


def _other_eps(right: Formula, eps: float) -> Diagnosis:
    text = f"eps is {f'{eps:.3g}' if eps else '0'}, expected {right.eps:.3g}"
    doublings = math.log2(eps / right.eps) / 2 if min(eps, right.eps) > 0 else 0.5
    if abs(doublings - round(doublings)) < 0.005 and right.eps_placement == "inside":
        text += f": as where x is multiplied by {2.0 ** -round(doublings):g} before it is squared"
    return Diagnosis("other_eps", text, {"eps": eps})


def other_groups(right: Formula, x: Tensor) -> Iterator[Diagnosis]:
    """Other ways to form groups, for one input."""
    channels = x.shape[1] if x.dim() > 1 else 1
    norm = NORMS[right.like]
    if norm.needs_positions:
        for groups in (g for g in range(1, channels) if channels % g == 0):
            text = f"channels share statistics: {channels} channels form {groups} groups"
            yield Diagnosis("wrong_grouping", text, {"like": "group_norm", "num_groups": groups})
    if not norm.grouped:
        return
    for grouping, text in (
        ("interleaved", MISTAKES["wrong_grouping"].message),
        ("per position", "each position of a group has statistics of its own"),
        ("memory", "groups are parts of the memory of an input with channels last, not channels"),
    ):
        if (grouping == "interleaved" and right.num_groups > 1) or x.dim() > 2:
            yield Diagnosis("wrong_grouping", text, {"grouping": grouping})
    for groups in range(1, channels + 1):
        if channels % groups == 0 and groups != right.num_groups:
            text = f"{channels} channels form {groups} groups, expected {right.num_groups}"
            yield Diagnosis("wrong_grouping", text, {"num_groups": groups})


def in_blocks(right: Formula, x: Tensor, widths: Collection[int]) -> Iterator[Diagnosis]:
    """Statistics in blocks of the last axis, for one input; `widths`: of all that are to fit."""
    if not NORMS[right.like].trailing or right.view(x)[1] != (x.dim() - 1,):
        return
    size = x.shape[-1]
    for block in (b for b in range(2, size) if not any(width % b for width in widths)):
        parts = size // block, block
        text = (
            f"the statistics are taken in blocks of {block} along the last axis, expected all "
            f"{size}. If blocks are meant, check `layer(x.flatten(-2)).unflatten(-1, {parts})` "
            f"with shape={(x.shape[0], *parts)}, axis=-1, weight_shape={parts}"
        )
        yield Diagnosis("in_blocks", text, {"block": block})


def other_axes(right: Formula, x: Tensor, elsewhere: Collection[int] = ()) -> Iterator[Diagnosis]:
    """Other axes to reduce, for one input; `elsewhere`: numbers of axes for which it is right."""
    expected, grouped = right.view(x)[1], NORMS[right.like].grouped
    for size in range(1, x.dim() + 1):
        for dims in itertools.combinations(range(x.dim()), size):
            if (grouped or dims != expected) and all(x.shape[d] > 1 for d in dims):
                wanted = "the group's" if grouped else f"{expected}"
                declared = dims[0] if len(dims) == 1 else dims
                if elsewhere:
                    ranks = " and ".join(map(str, elsewhere))
                    wanted += f" (right for {ranks} axes: if they alone are meant, pass shape=)"
                elif NORMS[right.like].trailing:
                    wanted += f" (if they are meant, declare axis={declared})"
                text = (
                    f"for an input of {x.dim()} axes the statistics are taken over axes {dims}, "
                    f"expected {wanted}"
                )
                yield Diagnosis("wrong_axis", text, {"dims": dims})


def explains(changes: dict[str, Any], evidence: Sequence[Evidence]) -> bool:
    """Whether the formula with these changes gives every observed output."""
    for e in evidence:
        value = e.formula.replace(**changes)(*e.inputs.given)
        if value.shape != e.got.shape or not max_error(e.got, value) <= _may_leave(e, value):
            return False
    return True


def _may_leave(e: Evidence, value: Tensor) -> float:
    """The error that a diagnosis may leave which gives this value."""
    scale = float(value.abs().max())
    if e.dtype in HALF:  # a diagnosis fits as closely as the right formula
        return max(e.budget, roundings(e.dtype) * torch.finfo(e.dtype).eps * scale)
    return _PROBE * scale if e.probe else 4 * max(e.budget, _ROUNDING * scale)


def _estimate_eps(changes: dict[str, Any], evidence: Sequence[Evidence]) -> float | None:
    """The eps that the smallest input shows, if the rest is as `changes` say."""
    probes = [e for e in evidence if e.probe and e.got.abs().max() > 0]
    if not probes or changes.get("root", "root") != "root":
        return None
    e = min(probes, key=lambda p: float(p.inputs.x.abs().max()))
    formula, (x, weight, _) = e.formula.replace(**changes), e.inputs.given
    if formula.affine_order in ("no weight", "none") or weight is None:
        x_hat = e.got
    else:
        x_hat = e.got / (formula.weight_offset + weight).view(formula.parameter_view(x))
    mean, var, count = formula.statistics(x)
    view, dims = formula.view(x)
    numerator = formula.numerator(view, mean)
    x_hat = x_hat.reshape(view.shape)
    root = numerator.square().sum(dims, keepdim=True) / (numerator * x_hat).sum(dims, keepdim=True)
    value = float(eps_in_root(root, var, formula.eps_placement).median())
    if not math.isfinite(value) or value <= 1e-3 * float(var.median()):
        return 0.0
    if formula.eps_placement == "clamp" and formula.clamp_of != "variance":
        return math.sqrt(value * (count if formula.clamp_of == "norm" else 1))
    return value


def find_other_eps(probe: Evidence) -> float | None:
    """Another eps with which the formula gives a small output in 16 bits, where its own does not.

    The input has no bias.
    """
    eps, right = _estimate_eps({}, [probe]), probe.output
    if eps is None or max_error(probe.got, right) <= 2 * _HALF * float(right.abs().max()):
        return None
    value = probe.formula.replace(eps=eps)(*probe.inputs.given)
    return eps if max_error(probe.got, value) <= _HALF * float(value.abs().max()) else None


def _search(
    single_changes: Sequence[Diagnosis],
    evidence: Sequence[Evidence],
    cost: int,
    base: Diagnosis | None = None,
) -> Diagnosis | None:
    """`cost` mistakes, besides `base`, that explain everything; another eps counts as one."""
    right = evidence[0].formula
    for size in (cost, cost - 1):
        for chosen in itertools.combinations(single_changes, size) if size >= 0 else ():
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
                    other = _other_eps(right, eps)
                    return other if whole is None else whole + other
    return None


def explain_forward(evidence: Sequence[Evidence]) -> Diagnosis:
    """Name the mistakes whose formula gives all the observed outputs.

    Among them are those that are right, so that a candidate must explain both, and those of probes
    by very small inputs, which show where eps is.
    """
    seen = [e for e in evidence if not e.probe]
    broken = [e for e in seen if not e.got.isfinite().all()]
    if any(e.formula.cells(e.inputs.case) == 1 for e in broken):
        return Diagnosis("variance_of_one", f"not finite where a mean is over one value: {ONE}")
    if broken:
        return Diagnosis(None, "the output has entries that are not finite")
    evidence = [e for e in evidence if e.got.isfinite().all()]
    # what is most wrong comes first, so that most candidates fall at the first call
    evidence = sorted(evidence, key=lambda e: e.excess, reverse=True)
    right = evidence[0].formula
    single_changes = forward_candidates(right)
    if all(torch.equal(e.got, e.inputs.x) for e in seen):
        return Diagnosis("identity", "the input is returned as it is: nothing is normalized")
    alone = [MISTAKES[name] for name in _ALONE if MISTAKES[name].applies_to(NORMS[right.like])]
    first = [*single_changes, *(_diagnosis(m, right) for m in alone)]
    sizes = {e.formula.cells(e.inputs.case) for e in seen}
    if all(n.bit_count() == 1 for n in sizes):  # a power of two needs no padding
        first = [found for found in first if found.mistake != "padding_in_variance"]
    for cost in (1, 2, 3):
        found = _search(first if cost == 1 else single_changes, evidence, cost)
        if found is not None:
            return found
    found = _explain_place(single_changes, evidence)
    if found is not None:
        return found
    worst = max(max_error(e.got, e.output) / float(e.output.abs().max()) for e in seen)
    if worst < _SINGLE:
        text = "the output is right to six or seven digits: something is computed in float32"
        return Diagnosis(None, f"{text}. Cast up alone, and not float64 down")
    if worst < _HALF:
        text = "the output is right to two or three digits: something is computed in half precision"
        return Diagnosis("half_precision_statistics", text)
    return Diagnosis(None, "no known mistake explains the output")


def _explain_place(
    single_changes: Sequence[Diagnosis], evidence: Sequence[Evidence]
) -> Diagnosis | None:
    """Statistics over other axes or groups, alone or with one more mistake."""

    def kind(e: Evidence) -> tuple[int, int, int]:
        return e.inputs.x.dim(), e.formula.normalized_ndim, e.formula.num_groups

    wrong = {kind(e): e for e in evidence if e.excess > 1}
    ranks = {e.inputs.x.dim() for e in evidence if not e.probe}
    elsewhere = sorted(ranks - {rank for rank, _, _ in wrong})
    for key, example in wrong.items():
        same = [e for e in evidence if kind(e) == key]
        axis_changes = [
            *other_groups(example.formula, example.inputs.x),
            *in_blocks(example.formula, example.inputs.x, {e.inputs.x.shape[-1] for e in same}),
            *other_axes(example.formula, example.inputs.x, elsewhere),
        ]
        for cost in (0, 1):
            for place in axis_changes:
                found = _search(single_changes, same, cost, place)
                if found is not None:
                    # it describes inputs of this rank alone
                    return dataclasses.replace(found, changes=None)
    return None
