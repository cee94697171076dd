"""From a wrong output or gradient to the mistake that explains it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normlab.checks.formula import Formula
from normlab.checks.tolerances import max_error

__all__ = ["Diagnosis", "Evidence", "explain_forward", "explain_gradient", "explain_parameter"]

_EPS = (1e-3, 1e-5, 1e-6, 1e-8, 1e-12, 0.0, torch.finfo(torch.float32).eps)
_PLACES = {
    "inside": "inside the root",
    "outside": "added to the root",
    "clamp": "a lower bound of the root (a clamp)",
}


@dataclass(frozen=True)
class Diagnosis:
    """A mistake that explains what was seen.

    Attributes:
        mistake: short name, or None where nothing explains it.
        sentence: for the report.
        changes: conventions of :class:`Formula` that describe the layer as it is.
    """

    mistake: str | None
    sentence: str
    changes: dict[str, Any] | None = None


@dataclass
class Evidence:
    """A call and what came of it, in float64.

    Attributes:
        formula: right formula, with the axes of this call.
        x: input.
        weight: or None.
        bias: or None.
        got: what the layer returned: its output, or its gradient by the input.
        budget: largest error allowed.
        dy: gradient by the output, for gradients.
    """

    formula: Formula
    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    got: Tensor
    budget: float
    dy: Tensor | None = None


def _conventions(right: Formula) -> Iterator[Diagnosis]:
    """Other divisors, places and sizes of eps; those that differ least come first."""
    sizes = dict.fromkeys((right.eps, *_EPS))
    combos = sorted(
        itertools.product(("n", "n-1"), _PLACES, sizes),
        key=lambda c: (c[0] != right.divisor) + (c[1] != right.eps_placement) + (c[2] != right.eps),
    )
    for divisor, place, eps in combos:
        names, parts = [], []
        if divisor != right.divisor:
            names.append("bessel" if divisor == "n-1" else "biased")
            parts.append(f"the variance has divisor {divisor}, expected {right.divisor}")
        if place != right.eps_placement:
            names.append(f"eps_{place}")
            parts.append(f"eps is {_PLACES[place]}, expected {_PLACES[right.eps_placement]}")
        if eps != right.eps:
            names.append("other_eps")
            parts.append(f"eps is {eps:.3g}, expected {right.eps:.3g}")
        if names:
            changes = {"divisor": divisor, "eps_placement": place, "eps": eps}
            yield Diagnosis("+".join(names), "; ".join(parts), changes)


def _structure(right: Formula) -> Iterator[Diagnosis]:
    if right.like == "rms_norm":
        yield Diagnosis(
            "centered", "the mean is subtracted: this is LayerNorm", {"like": "layer_norm"}
        )
    else:
        yield Diagnosis(
            "uncentered_numerator",
            "the mean is not subtracted before the division",
            {"uncentered": True},
        )
        yield Diagnosis(
            "missing_centering",
            "nothing is centered: the root mean square is taken in place of the variance",
            {"centered": False},
        )
    offset = 1.0 - right.weight_offset
    is_, expected = ("1 + weight", "weight") if offset else ("weight", "1 + weight")
    yield Diagnosis(
        "weight_offset", f"the factor is {is_}, expected {expected}", {"weight_offset": offset}
    )
    yield Diagnosis("bias_first", "the weight multiplies the bias, too", {"bias_first": True})
    yield Diagnosis(
        "sum_not_mean",
        "the squares are summed, not averaged: 1/n is missing",
        {"sum_not_mean": True},
    )


def _wrong_axes(e: Evidence) -> Iterator[Diagnosis]:
    right = e.formula.reduced(e.x)
    for size in range(1, e.x.dim() + 1):
        for dims in itertools.combinations(range(e.x.dim()), size):
            if dims != right and all(e.x.shape[d] > 1 for d in dims):
                yield Diagnosis(
                    "wrong_axis",
                    f"for an input of {e.x.dim()} axes the statistics are taken over axes {dims}, "
                    f"expected {right}",
                    {"dims": dims},
                )


def _explains(diagnosis: Diagnosis, evidence: Sequence[Evidence]) -> bool:
    assert diagnosis.changes is not None
    for e in evidence:
        value = e.formula.replace(**diagnosis.changes)(e.x, e.weight, e.bias)
        if value.shape != e.got.shape or not max_error(e.got, value) <= 4 * e.budget:
            return False
    return True


def explain_forward(evidence: Sequence[Evidence]) -> Diagnosis:
    """Name the mistake whose formula gives all the observed outputs.

    Args:
        evidence: every call that was made, those with a right result included, so that a
            candidate must explain both.
    """
    if any(not e.got.isfinite().all() for e in evidence):
        return Diagnosis(None, "the output has entries that are not finite")
    right = evidence[0].formula
    for diagnosis in itertools.chain(_conventions(right), _structure(right)):
        if _explains(diagnosis, evidence):
            return diagnosis
    for example in {e.x.dim(): e for e in reversed(evidence)}.values():
        same_rank = [
            e
            for e in evidence
            if (e.x.dim(), e.formula.normalized_ndim)
            == (example.x.dim(), example.formula.normalized_ndim)
        ]
        for diagnosis in _wrong_axes(example):
            if _explains(diagnosis, same_rank):
                return Diagnosis(diagnosis.mistake, diagnosis.sentence)
    return Diagnosis(None, "no known mistake explains the output")


def explain_gradient(e: Evidence) -> Diagnosis:
    """Name the mistake whose formula gives the observed gradient by the input."""

    def gradient(weight: Tensor | None, **changes: bool) -> Tensor:
        x = e.x.clone().requires_grad_()
        y = e.formula.replace(**changes)(x, weight, e.bias)
        return torch.autograd.grad(y, x, e.dy)[0]

    candidates: list[tuple[Diagnosis, Callable[[], Tensor]]] = [
        (
            Diagnosis(
                "detached_statistics",
                "mean and variance are cut from the graph (constants in the backward pass)",
            ),
            lambda: gradient(e.weight, detach_mean=True, detach_var=True),
        ),
        (
            Diagnosis("missing_mean_term", "the term that comes through the mean is missing"),
            lambda: gradient(e.weight, detach_mean=True),
        ),
        (
            Diagnosis(
                "missing_projection_term", "the term that comes through the variance is missing"
            ),
            lambda: gradient(e.weight, detach_var=True),
        ),
    ]
    if e.weight is not None:
        factor = (e.weight + e.formula.weight_offset).view(e.formula.parameter_view(e.x))
        candidates += [
            (
                Diagnosis(
                    "weight_after_projection",
                    "the weight is applied after the projection; it belongs before it",
                ),
                lambda: gradient(None) * factor,
            ),
            (
                Diagnosis("missing_weight", "the weight is missing in the gradient by the input"),
                lambda: gradient(None),
            ),
        ]
    for diagnosis, candidate in candidates:
        if max_error(e.got, candidate()) <= 4 * e.budget:
            return diagnosis
    return Diagnosis(None, "no known mistake explains the gradient by the input")


def explain_parameter(got: Tensor, expected: Tensor) -> Diagnosis:
    """Name the mistake behind a wrong gradient by the weight or the bias."""
    ratio = float((got.double() * expected).sum() / expected.square().sum())
    scale = float(expected.abs().max())
    if ratio > 0 and max_error(got.double(), expected * ratio) <= 1e-4 * scale:
        return Diagnosis(
            "averaged", f"it is {ratio:.3g} times the sum over samples: averaged, not summed"
        )
    return Diagnosis(None, "no known mistake explains it")
