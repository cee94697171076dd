"""Does a layer compute the norm that it is meant to be? If not, which mistake is it?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from normlab.checks.diagnosis import ONE
from normlab.checks.formula import FAMILIES, Formula, default_eps
from normlab.checks.half import check_half_evaluation, check_half_precision, check_weight_cast
from normlab.checks.numerics import check_values, give_running
from normlab.checks.probing import ForeignFunction
from normlab.checks.probing.inputs import Declared, ParameterMismatch, sizes_of
from normlab.checks.probing.modules import ForeignModule, as_norm
from normlab.checks.probing.state import preserve_state, uncompiled
from normlab.checks.report import (
    CheckFailed,
    Failure,
    Finding,
    Note,
    Ran,
    Report,
    collect,
    make_failure,
)
from normlab.checks.robustness import check_double_backward, check_handling, check_unchanged
from normlab.checks.running import check_buffers, check_fixed, check_running
from normlab.checks.situations import check_compiled, check_situations, check_sizes
from normlab.checks.state import check_evaluation, check_saved_state
from normlab.checks.trial import Scope, Trial, name_of
from normlab.norms import CONVENTIONS, FROZEN, NORMS

_LARGE = 300_000
_LIKES = (*FAMILIES, FROZEN)


def _check_conventions(like: str, conventions: dict[str, Any]) -> None:
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
    if groups is not None and not (like in NORMS and NORMS[like].grouped):
        remedy = "a norm over groups of channels is a group_norm"
        if like in NORMS and NORMS[like].trailing:
            remedy = (
                "check a norm in blocks of features with the blocks on an axis of their own, as "
                "shape=(4, 2, 8), axis=-1, weight_shape=(2, 8)"
            )
        raise ValueError(f"num_groups: {like} has no groups; {remedy}")


def _declared_formula(
    like: str, own_eps: float | None, *, eps: float | None = None, **conventions: Any
) -> Formula:
    """The formula with the declared conventions; `own_eps` is that of the module."""
    eps = own_eps if eps is None else eps
    chosen = {} if eps is None else {"eps": eps}
    shown = ("eps_placement", "divisor", "weight_offset")
    return Formula.of(like, **chosen, **{k: v for k, v in conventions.items() if k in shown})


def check_layer(
    layer: Callable[..., Tensor],
    *,
    like: str,
    shape: Sequence[int] | None = None,
    axis: int | Sequence[int] | None = None,
    weight_shape: Sequence[int] | None = None,
    double_backward: bool = False,
    raise_on_failure: bool = False,
    dtype: Any = None,
    dtypes: Collection[Any] | None = None,
    forward_only: bool = False,
    empty: bool = True,
    batch_of_one: bool = True,
    track_running_stats: bool = True,
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
        layer: a function or a module of one tensor that returns one; wrap what is called otherwise,
            as `lambda x, weight: kernel(weight, x)[0]`.
        like: a name of :data:`normlab.norms.NORMS`, such as "layer_norm" or "scale_norm", or
            "frozen_batch_norm" for a module with weight, bias, running mean and variance as
            buffers, which normalizes with these in training, too, and never moves them.
        shape: shape of an input; for a module it is inferred where possible, and every rank up to
            5 that its parameters fit is asked of it, but one rank alone of a batch or instance
            norm. A layer or RMS norm whose parameters fit axis 1 alone is one over the channels of
            (N, C, H, W).
        axis: over what a layer or RMS norm takes its statistics, counted in `shape`, which it then
            needs: 1 for the channels of (N, C, H, W), (1, 2) for all of a sample. The last axis, or
            those that its parameters have, by default.
        weight_shape: of its weight and bias, broadcast from the right against `shape`, such as
            (heads, 1, features) for one weight a head; () for none.
        double_backward: also differentiate twice.
        raise_on_failure: raise instead of returning a report with failures.
        dtype: of the inputs; "float64", "bfloat16" or "float16", also as a torch.dtype, for a layer
            that takes no float32. Values and gradients alone are compared then.
        dtypes: those to be tried, of "float32", "bfloat16" and "float16"; all by default.
        forward_only: compare no gradients.
        empty: give inputs without rows, too.
        batch_of_one: give a single sample, too.
        track_running_stats: False for a batch norm without running statistics, which evaluates
            with those of the batch.
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
    scope = Scope.of(
        dtype, dtypes, forward_only, empty, batch_of_one, double_backward, track_running_stats
    )
    shape = None if shape is None else sizes_of(shape)
    report = examine(
        layer,
        like=like,
        shape=shape,
        declared=Declared.of(like, shape, axis, weight_shape) if like in _LIKES else None,
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
    seeds: Sequence[int] = (0, 1, 2),
    scope: Scope = Scope(),  # noqa: B008 -- it is frozen
    **conventions: Any,
) -> Report:
    """The same as :func:`check_layer`, for inputs of other seeds."""
    if like not in _LIKES:
        why = f" ({NORMS[like].absent['check']})" if like in NORMS else ""
        known = ", ".join(map(repr, _LIKES))
        raise ValueError(f"like: got {like!r}{why}; expected one of {known}")
    _check_conventions(like, conventions)
    # the caller's random streams stay as they were; what the layer warns of is no wrong value
    with preserve_state([]), warnings.catch_warnings(), uncompiled():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        report, frozen = Report(like), like == FROZEN
        like = "batch_norm" if frozen else like
        if frozen and collect(report, check_buffers(layer)).failures:
            return report
        try:
            eps = conventions.get("eps", default_eps(like))
            foreign = as_norm(layer, like, shape, conventions.get("num_groups"), eps, declared)
        except ParameterMismatch as error:
            mismatch = Failure("parameters", str(error), "parameter_shape")
            return collect(report, [Ran("parameters", 0), mismatch])
        formula = _declared_formula(like, foreign.declared_eps, **conventions)
        if frozen and isinstance(foreign, ForeignModule):
            formula = formula.replace(fixed=foreign.fix_running())
        order, momentum = conventions.get("weight_cast"), conventions.get("momentum")
        if formula.divisor == "n-1" and any(formula.cells(c) == 1 for c in foreign.cases):
            raise ValueError(f"shape: every mean is over one value: {ONE}; pass a shape with more")
        asked = None if shape is None else tuple(shape)
        cases = tuple(foreign.cases)
        trial = Trial(foreign, cases, formula, formula, scope, order, momentum, asked)
        if max(torch.Size(case.shape).numel() for case in trial.cases) > _LARGE:
            seeds = seeds[:1]  # so many numbers need no second draw
        return collect(report, _run_checks(trial, seeds, report.failures))


def _run_checks(
    trial: Trial, seeds: Sequence[int], failures: Sequence[Failure]
) -> Iterator[Finding]:
    """What every check finds, in their order; `failures` are those that were yielded so far."""
    layer, scope = trial.layer, trial.scope
    if isinstance(layer, ForeignFunction) and layer.has_running:
        yield from give_running(trial, layer, seeds[0])
    if scope.dtype != torch.float32:
        known = yield from check_values(trial, seeds)
        if known is not None and not failures:
            yield from check_sizes(known)
        text = f"everything but values and sizes, for {name_of(scope.dtype)} input alone"
        yield Note(text, untested=True)
        return
    yield from check_unchanged(trial)
    # the cases that the layer takes, and the formula that describes it, are known from here on
    known = yield from check_values(trial, seeds)
    if known is not None:
        known = yield from check_half_precision(known)
        if known.weight_cast is not None:
            yield from check_weight_cast(known, known.weight_cast)
        yield from check_handling(known, failures)
        if trial.declared.fixed is not None:
            yield from check_fixed(known, trial.declared.fixed)
        elif NORMS[layer.like].has_running:
            yield from check_running(known)
        yield from check_evaluation(known, failures)
        yield from check_half_evaluation(known, failures)
        yield from check_saved_state(known, failures)
        yield from check_situations(known, failures)
        if scope.double_backward:
            yield from check_double_backward(known)
        if layer.compiled:
            yield from check_compiled(known)
    if isinstance(layer, ForeignModule) and layer.attached:
        sentence = f"{', '.join(layer.attached)}: a buffer that hangs on the autograd graph"
        yield make_failure("saved state", sentence, "running_in_graph")
