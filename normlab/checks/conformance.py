"""Does a layer compute the norm that it is meant to be? If not, which mistake is it?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from normlab.checks.compiled import check_compiled, is_compiled
from normlab.checks.formula import FAMILIES, Formula, default_eps
from normlab.checks.half import check_half_precision, check_weight_cast
from normlab.checks.inputs import conventions_of
from normlab.checks.numerics import check_values
from normlab.checks.probing.adapting import adapt
from normlab.checks.probing.inputs import Declared, ParameterMismatch, sizes_of
from normlab.checks.probing.modules import ForeignModule, ForeignNorm, as_norm
from normlab.checks.probing.state import preserve_state, uncompiled
from normlab.checks.report import CheckFailed, Failure, Report, make_failure
from normlab.checks.robustness import check_double_backward, check_handling, check_unchanged
from normlab.checks.running import check_running
from normlab.checks.scope import Scope
from normlab.checks.situations import check_situations
from normlab.checks.state import check_evaluation, check_saved_state
from normlab.norms import NORMS

CONVENTIONS: dict[str, tuple[Any, ...] | None] = {
    "eps": None,
    "eps_placement": ("inside", "outside", "clamp"),
    "divisor": ("n", "n-1"),
    "weight_offset": (0, 1),
    "weight_cast": ("before", "after"),
    "momentum": None,
    "num_groups": None,
}


_LARGE = 300_000


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


def _note_what_is_switched_off(subject: ForeignNorm, report: Report) -> None:
    """The formula of the checks has no bound of the output, and corrects nothing.

    Raises:
        ValueError: the correction cannot be switched off.
    """
    signature = NORMS[subject.like].signature
    if "r_max" in signature:
        if not subject.has_bounds:
            raise ValueError(
                "layer: could not be tested: a norm that corrects toward the running statistics "
                "needs arguments or attributes r_max and d_max, with which the checks switch the "
                "correction off"
            )
        report.notes.append("the correction by r and d, which is off here (r_max 1, d_max 0)")
    if "threshold" in signature:
        report.notes.append("the threshold, which is below every output here")


def _expected_formula(
    like: str, declared_eps: float | None, conventions: dict[str, Any]
) -> Formula:
    eps = conventions.get("eps")
    if eps is None:
        eps = declared_eps if declared_eps is not None else default_eps(like)
    kept = ("eps_placement", "divisor")
    chosen: dict[str, Any] = {key: conventions[key] for key in kept if key in conventions}
    if "weight_offset" in conventions:
        chosen["weight_offset"] = float(conventions["weight_offset"])
    return Formula(like, eps=eps, **(conventions_of(like) | chosen))


def check_layer(
    layer: Callable[..., Tensor],
    *,
    like: str,
    shape: Sequence[int] | None = None,
    axis: int | Sequence[int] | None = None,
    weight_shape: Sequence[int] | None = None,
    double_backward: bool = False,
    raise_on_failure: bool = False,
    call: str | None = None,
    select: str | None = None,
    dtype: Any = None,
    dtypes: Collection[Any] | None = None,
    forward_only: bool = False,
    empty: bool = True,
    batch_of_one: bool = True,
    **conventions: Any,
) -> Report:
    """Compare a layer with the formula of a norm, and name the likely mistake where it differs.

    A plain function is called with the parameter order of :mod:`torch.nn.functional`, with
    inputs, weights and biases of this check's choosing. A module is copied, its parameters and
    buffers are randomized, and it is called as `module(x)` in training and evaluation mode.

    Every result is compared with a float64 formula that shares no code with the layers. The
    error allowed is a small multiple of torch's own error on the same inputs, so that torch's
    layers pass by measurement and what is hard for torch is not charged to others.

    A layer that raises for an input that its signature, its rank and its dtype admit does not
    conform. One that takes no float32 input at all cannot be tested; one that takes no input of a
    16-bit dtype may conform, and the report's `untested` says so.

    Args:
        layer: a function or a module.
        like: a name of :data:`normlab.norms.NORMS`, such as "layer_norm" or "scale_norm".
        shape: shape of an input; for a module it is inferred where possible, and every rank that
            its parameters fit is asked of it, but one rank alone of a batch or instance norm. A
            layer or RMS norm whose parameters fit axis 1 alone is one over the channels of
            (N, C, H, W).
        axis: over what a layer or RMS norm takes its statistics, counted in `shape`, which it then
            needs: 1 for the channels of (N, C, H, W), (1, 2) for all of a sample. The last axis, or
            those that its parameters have, by default.
        weight_shape: of its weight and bias, broadcast from the right against `shape`, such as
            (heads, 1, features) for one weight a head; () for none.
        double_backward: also differentiate twice.
        raise_on_failure: raise instead of returning a report with failures.
        call: how the layer is called, as "f(x, weight)" or "f(x, torch.zeros_like(x))": an
            expression with `f`, the layer, `x`, the input, and, for a function, the parameters of
            its family.
        select: what stands behind the result to get the tensor that counts, as "[0]".
        dtype: of the inputs; "float64", "bfloat16" or "float16", also as a torch.dtype, for a layer
            that takes no float32. Values and gradients alone are compared then.
        dtypes: those to be tried, of "float32", "bfloat16" and "float16"; all by default.
        forward_only: compare no gradients.
        empty: give inputs without rows, too.
        batch_of_one: give a single sample, too.
        conventions: choices that are not mistakes: `eps`, `eps_placement` ("inside", "outside",
            "clamp"), `divisor` ("n", "n-1"), `weight_offset` (0, 1), `weight_cast` ("before" or
            "after" the cast back to the input's dtype), `momentum`, `num_groups`. Without `eps`
            the module's own `eps` counts, else torch's default; without `weight_cast` either
            order is right.

    Returns:
        a report with `.passed`, `.failures` and a readable `str`.

    Raises:
        TypeError: an unknown convention, a shape that is no sequence of integers, or `layer` is not
            callable or is a class.
        ValueError: an unknown family or value, a shape that cannot be inferred, or a layer that
            could not be tested, because it raises for every input.
        CheckFailed: something failed and `raise_on_failure` is set.

    Example:
        >>> print(check_layer(torch.nn.functional.layer_norm, like="layer_norm").passed)
        True
    """
    scope = Scope.of(dtype, dtypes, forward_only, empty, batch_of_one)
    shape = None if shape is None else sizes_of(shape)
    if like in FAMILIES and callable(layer) and not isinstance(layer, type):
        layer = adapt(layer, like, call, select)
    report = examine(
        layer,
        like=like,
        shape=shape,
        declared=Declared.of(like, shape, axis, weight_shape) if like in FAMILIES else None,
        double_backward=double_backward and scope.backward,
        scope=scope,
        **conventions,
    )
    if raise_on_failure and not report.passed:
        raise CheckFailed(str(report))
    return report


def examine(
    layer: Callable[..., Tensor],
    *,
    like: str,
    shape: Sequence[int] | None = None,
    declared: Declared | None = None,
    double_backward: bool = False,
    seeds: Sequence[int] = (0, 1, 2),
    scope: Scope | None = None,
    **conventions: Any,
) -> Report:
    """The same as :func:`check_layer`, for inputs of other seeds."""
    if like not in FAMILIES:
        why = f" ({NORMS[like].absent['check']})" if like in NORMS else ""
        known = ", ".join(map(repr, FAMILIES))
        raise ValueError(f"like: got {like!r}{why}; expected one of {known}")
    _check_conventions(conventions)
    report, scope = Report(like), scope or Scope()
    # the caller's random streams stay as they were; what the layer warns of is no wrong value
    with preserve_state([]), warnings.catch_warnings(), uncompiled():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        eps = conventions.get("eps", default_eps(like))
        try:
            subject = as_norm(layer, like, shape, conventions.get("num_groups"), eps, declared)
        except ParameterMismatch as error:
            report.checks.append("parameters")
            report.failures.append(Failure("parameters", str(error), "parameter_shape"))
            return report
        if max(torch.Size(case.shape).numel() for case in subject.cases) > _LARGE:
            seeds = seeds[:1]  # so many numbers need no second draw
        subject.scope = scope
        _note_what_is_switched_off(subject, report)
        formula = _expected_formula(like, subject.declared_eps, conventions)
        if scope.dtype == torch.float32:
            check_unchanged(subject, report)
        actual = check_values(subject, formula, report, seeds)
        if scope.dtype != torch.float32:
            name = str(scope.dtype).removeprefix("torch.")
            report.untested.append(f"everything but values and gradients, for {name} input alone")
            return report
        # now the inputs that it takes are known
        if "input unchanged" not in report.checks and subject.cases:
            check_unchanged(subject, report)
        if actual is not None:
            weight_cast = conventions.get("weight_cast")
            check_half_precision(subject, actual, report, weight_cast)
            if weight_cast is not None:
                check_weight_cast(subject, actual, report, weight_cast)
            check_handling(subject, actual, report)
            if NORMS[like].has_running and (NORMS[like].over_batch or subject.has_running):
                check_running(subject, actual, formula, report, conventions.get("momentum"))
            check_evaluation(subject, actual, formula, report)
            check_saved_state(subject, report)
            check_situations(subject, actual, report)
            if double_backward:
                check_double_backward(subject, actual, report)
            if is_compiled(layer):
                check_compiled(subject, actual, report)
        if isinstance(subject, ForeignModule) and subject.attached:
            sentence = f"{', '.join(subject.attached)}: a buffer that hangs on the autograd graph"
            report.failures.append(make_failure("saved state", sentence, "running_in_graph"))
    return report
