"""Does a layer compute the norm that it is meant to be? If not, which mistake is it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from normlab.checks.formula import FAMILIES, Formula, default_eps
from normlab.checks.numerics import check_values
from normlab.checks.report import CheckFailed, Report
from normlab.checks.robustness import check_double_backward, check_half_precision, check_handling
from normlab.checks.state import check_evaluation, check_running, check_same_in_evaluation
from normlab.checks.subject import make_subject

__all__ = ["CONVENTIONS", "check_layer"]

CONVENTIONS: dict[str, tuple[Any, ...] | None] = {
    "eps": None,
    "eps_placement": ("inside", "outside", "clamp"),
    "divisor": ("n", "n-1"),
    "weight_offset": (0, 1),
    "weight_cast": ("before", "after"),
    "momentum": None,
    "num_groups": None,
}


def _check_conventions(conventions: dict[str, Any]) -> None:
    for name, value in conventions.items():
        if name not in CONVENTIONS:
            raise TypeError(
                f"{name}: not a convention; expected one of {', '.join(sorted(CONVENTIONS))}"
            )
        allowed = CONVENTIONS[name]
        if allowed is not None and value not in allowed:
            raise ValueError(f"{name}: got {value!r}; expected one of {allowed}")
    eps = conventions.get("eps")
    if eps is not None and not (isinstance(eps, int | float) and eps >= 0):
        raise ValueError(f"eps: got {eps!r}; expected a number that is not negative")
    groups = conventions.get("num_groups")
    if groups is not None and not (isinstance(groups, int) and groups >= 1):
        raise ValueError(f"num_groups: got {groups!r}; expected a positive int")


def _expected_formula(
    like: str, declared_eps: float | None, conventions: dict[str, Any]
) -> Formula:
    eps = conventions.get("eps")
    if eps is None:
        eps = declared_eps if declared_eps is not None else default_eps(like)
    return Formula(
        like,
        eps=eps,
        eps_placement=conventions.get("eps_placement", "inside"),
        divisor=conventions.get("divisor", "n"),
        weight_offset=float(conventions.get("weight_offset", 0)),
    )


def check_layer(
    layer: Callable[..., Tensor],
    *,
    like: str,
    shape: Sequence[int] | None = None,
    double_backward: bool = False,
    raise_on_failure: bool = False,
    **conventions: Any,
) -> Report:
    """Compare a layer with the formula of a norm, and name the likely mistake where it differs.

    A plain function is called with the parameter order of :mod:`torch.nn.functional`, with
    inputs, weights and biases of this check's choosing. A module is copied, its parameters and
    buffers are randomized, and it is called as `module(x)` in training and evaluation mode.

    Every result is compared with a float64 formula that shares no code with the layers. The
    error allowed is a small multiple of torch's own error on the same inputs, so that torch's
    layers pass by measurement and what is hard for torch is not charged to others.

    Args:
        layer: a function or a module.
        like: "layer_norm", "rms_norm", "batch_norm", "group_norm" or "instance_norm".
        shape: shape of an input; for a module it is inferred where possible.
        double_backward: also differentiate twice.
        raise_on_failure: raise instead of returning a report with failures.
        conventions: choices that are not mistakes: `eps`, `eps_placement` ("inside", "outside",
            "clamp"), `divisor` ("n", "n-1"), `weight_offset` (0, 1), `weight_cast` ("before" or
            "after" the cast back to the input's dtype), `momentum`, `num_groups`. Without `eps`
            the module's own `eps` counts, else torch's default.

    Returns:
        a report with `.passed`, `.failures` and a readable `str`.

    Raises:
        TypeError: an unknown convention, or `layer` is not callable or is a class.
        ValueError: an unknown family or value, or a shape that cannot be inferred.
        CheckFailed: something failed and `raise_on_failure` is set.

    Example:
        >>> print(check_layer(torch.nn.functional.layer_norm, like="layer_norm").passed)
        True
    """
    if like not in FAMILIES:
        raise ValueError(f"like: got {like!r}; expected one of {', '.join(map(repr, FAMILIES))}")
    _check_conventions(conventions)
    report = Report(like)
    with torch.random.fork_rng(devices=[]):  # the caller's random stream is left as it was
        subject = make_subject(layer, like, shape, conventions.get("num_groups"))
        formula = _expected_formula(like, subject.declared_eps, conventions)
        actual = check_values(subject, formula, report)
        if actual is not None:
            weight_cast = conventions.get("weight_cast", "before")
            check_half_precision(subject, actual, report, weight_cast)
            check_handling(subject, actual, report)
            if like == "batch_norm" or (like == "instance_norm" and subject.has_running):
                check_running(subject, actual, report, conventions.get("momentum"))
                check_evaluation(subject, actual, report)
            else:
                check_same_in_evaluation(subject, report)
            if double_backward:
                check_double_backward(subject, actual, report)
    if raise_on_failure and not report.passed:
        raise CheckFailed(str(report))
    return report
