"""Awkward inputs: strided, constant, empty, alone; and second derivatives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from normlab.checks.inputs import ORDINARY, Inputs, make_inputs, oracle
from normlab.checks.probing import ForeignFunction, ForeignModule
from normlab.checks.report import Failure, Finding, Note, Ran, make_failure
from normlab.checks.tolerances import GROSS, max_error
from normlab.checks.trial import Trial


def check_handling(trial: Trial, failures: Sequence[Failure]) -> Iterator[Finding]:
    """Another eps, and strided, constant and empty inputs are handled.

    Args:
        trial: the layer.
        failures: an input that is damaged would show here again.
    """
    if any(f.mistake == "in_place" for f in failures):
        yield Note("strided, constant and empty input, because the input is damaged")
        return
    norm, scope = trial.norm, trial.scope
    inputs = make_inputs(trial.cases[0], seed=5)
    if isinstance(trial.layer, ForeignFunction) and trial.layer.takes_eps:
        yield from _check_eps_argument(trial, inputs)
    yield from _check_strides(trial)
    if inputs.case.is_one_row:
        return
    level = 3.0 if norm.centered else 0.0  # nothing to divide by, but eps
    constant = replace(inputs, x=torch.full_like(inputs.x, level))
    want = trial.expect(constant, backward=False)["y"]
    if want.isfinite().all():
        yield Ran("constant input")
        yield from _judge(trial, "constant input", constant, want, 1e-2)
    if "empty input" not in norm.may_fail and scope.empty:
        yield from _check_empty(trial, inputs)


def _judge(
    trial: Trial, name: str, inputs: Inputs, expected: Tensor, allowed: float, **call: Any
) -> Iterator[Failure]:
    """What is wrong with one output; a mistake is named where the layer raises."""
    try:
        with torch.no_grad():
            got, _ = trial.layer(inputs.case, *inputs.given, **call)
    except Exception as error:  # the layer under test may fail in any way
        article = "an" if name.startswith("e") else "a"
        text = f"raises when it is given {article} {name}: {type(error).__name__}: {error}"
        yield Failure(name, text, name.replace(" ", "_") + "_raises")
        return
    if got.shape != expected.shape:
        text = f"the output has shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
        yield Failure(name, text)
        return
    wrong = max_error(got, expected)
    if not wrong <= allowed:
        yield Failure(name, f"the output is off by {wrong:.1e}")


def check_unchanged(trial: Trial) -> Iterator[Finding]:
    """Neither input, parameters nor upstream gradient are written into.

    The first case that the layer takes shows it; that it takes none is reported by the next check.
    """
    for case in trial.cases:
        inputs = make_inputs(case, seed=5)
        try:
            damaged = _damaged(trial, inputs)
        except Exception:  # the layer under test may fail in any way
            continue
        yield Ran("input unchanged")
        if damaged:
            text = f"the layer writes into its {damaged} (in-place damage)"
            yield make_failure("input unchanged", text, "in_place")
        elif trial.scope.backward:
            yield from _check_upstream(trial, inputs)
        return


def _check_upstream(trial: Trial, inputs: Inputs) -> Iterator[Finding]:
    name, dy = "upstream gradient unchanged", inputs.dy.clone()
    x = inputs.x.clone().requires_grad_()
    y, _ = trial.layer(inputs.case, x, inputs.weight, inputs.bias)
    if not (isinstance(y, Tensor) and y.requires_grad and y.shape == dy.shape):
        return
    yield Ran(name)
    with contextlib.suppress(Exception):  # reported by the checks of gradients
        y.backward(dy)
    if not torch.equal(dy, inputs.dy):
        text = "the backward pass writes into the upstream gradient (in-place damage)"
        yield make_failure(name, text, "in_place")


def _damaged(trial: Trial, inputs: Inputs) -> str:
    """What a call has changed; empty if nothing."""
    for training in (True, False) if isinstance(trial.layer, ForeignModule) else (True,):
        x, *parameters = now = [None if t is None else t.clone() for t in inputs.given]
        assert x is not None
        try:
            with torch.no_grad():
                trial.layer(inputs.case, x, *parameters, training=training)
        except Exception:
            if training:
                raise
            break  # what raises in evaluation is reported by its own check
        for name, a, b in zip(("input", "weight", "bias"), now, inputs.given, strict=True):
            if a is not None and b is not None and not torch.equal(a, b):
                return name
    return ""


def _check_eps_argument(trial: Trial, inputs: Inputs) -> Iterator[Finding]:
    name, formula = "eps argument", trial.actual
    yield Ran(name)
    eps = 100.0 if formula.eps_placement == "clamp" else 0.1  # a small bound would not bind
    want = oracle(formula.replace(eps=eps), inputs, backward=False)["y"]
    for failure in _judge(trial, name, inputs, want, GROSS * float(want.abs().max()), eps=eps):
        if failure.mistake:
            yield failure
        else:
            text = f"eps={eps:g} gives another output than the formula with eps {eps:g}"
            yield Failure(name, text, "eps_argument")


def _layouts(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The same numbers in other places of memory, and an input that repeats its first sample.

    What goes wrong with a copy of these, too, is no matter of memory; other checks report it.
    """
    spread = torch.zeros(*x.shape, 2)
    spread[..., 0] = x
    yield "every other entry of a larger tensor", spread[..., 0]
    yield "a transposed input", x.transpose(0, -1).contiguous().transpose(0, -1)
    if x.dim() > 2:
        yield "an input with channels last", x.movedim(1, -1).contiguous().movedim(-1, 1)
    yield "an expanded input", x[:1].expand(x.shape)


def _check_strides(trial: Trial) -> Iterator[Finding]:
    """At the first and at the highest rank, until something is wrong."""
    name, backward = "strided input", trial.scope.backward
    yield Ran(name, 0)
    by_rank = {len(c.shape): c for c in trial.cases}
    for case in dict.fromkeys((trial.cases[0], by_rank[max(by_rank)])):
        inputs = make_inputs(case, seed=5)
        for layout, x in _layouts(inputs.x):
            laid = replace(inputs, x=x)
            expected = trial.expect(laid, backward=False)["y"]
            if not expected.isfinite().all():
                continue
            yield Ran(name)
            allowed = GROSS * max(1.0, float(expected.abs().max()))
            wrong = list(_judge(trial, name, laid, expected, allowed))
            if not wrong and backward:
                wrong = list(_judge_backward(trial, name, laid))
            copy = replace(laid, x=x.contiguous())
            if wrong and not list(_judge(trial, name, copy, expected, allowed)):
                text = f"{layout} is not handled: {wrong[0].message}"
                yield make_failure(name, text, "non_contiguous")
                return


def _gradients(trial: Trial, inputs: Inputs, x: Tensor, dy: Tensor) -> list[tuple[str, Tensor]]:
    x, (_, weight, bias) = x.detach().requires_grad_(), inputs.leaves(x.dtype)
    y, leaves = trial.layer(inputs.case, x, weight, bias)
    if not y.requires_grad:
        return []
    named = zip(("input", "weight", "bias"), (x, *leaves), strict=False)
    y.backward(dy)  # not torch.autograd.grad, which checkpoints that reenter refuse
    return [(name, t.grad) for name, t in named if t is not None and t.grad is not None]


def _judge_backward(trial: Trial, name: str, inputs: Inputs) -> Iterator[Failure]:
    """The gradients are the same for a strided input, and for upstream gradients that are."""
    dy = inputs.dy
    copied = dy[:1].expand(dy.shape)  # as a sum over the batch gives it
    try:
        for given in (dy.transpose(0, -1).contiguous().transpose(0, -1), copied):
            contiguous = given.clone(memory_format=torch.contiguous_format)
            right = _gradients(trial, inputs, inputs.x.contiguous(), contiguous)
            got = dict(_gradients(trial, inputs, inputs.x, given))
            for role, expected in right:
                wrong = max_error(got[role], expected) if role in got else torch.inf
                largest = max(1.0, float(expected.abs().max()))
                if not wrong <= 10 * GROSS * largest and expected.isfinite().all():
                    text = f"with an upstream gradient of strides {given.stride()}, that by the "
                    yield Failure(name, f"{text}{role} is off by {wrong:.1e}")
                    return
    except Exception as error:  # the layer under test may fail in any way
        yield Failure(name, f"the backward pass raises {type(error).__name__}: {error}")


def _check_empty(trial: Trial, inputs: Inputs) -> Iterator[Finding]:
    """No rows in, no rows out. A channel norm that refuses them is noted, not charged."""
    name, empty = "empty input", inputs.x.new_zeros(0, *inputs.x.shape[1:])
    failures = list(_judge(trial, name, replace(inputs, x=empty), empty, 0.0))
    if failures and failures[0].mistake and not trial.norm.trailing:
        yield Note(f"{name}: {failures[0].message}")
        return
    yield Ran(name)
    for failure in failures:
        yield make_failure(name, failure.message, "empty_input")


def check_double_backward(trial: Trial) -> Iterator[Finding]:
    """The gradient of a function of the gradient agrees with the formula's."""
    name, inputs = "double backward", make_inputs(trial.cases[0], ORDINARY, seed=7)
    yield Ran(name)
    x64, weight, bias = inputs.leaves(torch.float64)
    y64 = trial.actual.at(inputs.case)(x64, weight, bias)
    expected = _differentiate_twice(y64, x64, inputs.dy.double())
    x = inputs.x.clone().requires_grad_()
    try:
        y, _ = trial.layer(inputs.case, x, inputs.weight, inputs.bias)
        got = _differentiate_twice(y, x, inputs.dy)
    except Exception as error:  # the layer under test may fail in any way
        what = "module" if isinstance(trial.layer, ForeignModule) else "function"
        text = f"the {what} cannot be differentiated twice: {error}"
        yield Failure(name, text, "once")
        return
    difference = max_error(got, expected)
    if not difference <= GROSS * float(expected.abs().max()):
        yield Failure(name, f"the second derivative is off by {difference:.1e}", "second")


def _differentiate_twice(y: Tensor, x: Tensor, dy: Tensor) -> Tensor:
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
    (second,) = torch.autograd.grad(dx.square().sum(), x)
    return second
