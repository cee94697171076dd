"""Awkward inputs: strided, constant, empty, alone; and second derivatives."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from normlab.checks.formula import Formula
from normlab.checks.inputs import ORDINARY, Inputs, formula_for, make_inputs, oracle
from normlab.checks.probing import ForeignFunction, ForeignModule, ForeignNorm
from normlab.checks.report import Failure, Report, make_failure
from normlab.checks.tolerances import max_error
from normlab.norms import NORMS

_GROSS = 1e-3  # the values were checked elsewhere: here only a gross difference counts


def check_handling(subject: ForeignNorm, formula: Formula, report: Report) -> None:
    """The input survives, and strided, constant and empty inputs are handled."""
    norm = NORMS[formula.like]
    inputs = make_inputs(subject.cases[0], ORDINARY, torch.float32, seed=5)
    if any(f.mistake == "in_place" for f in report.failures):
        report.notes.append("strided, constant and empty input, because the input is damaged")
        return
    if isinstance(subject, ForeignFunction) and subject.takes_eps:
        _check_eps_argument(subject, formula, inputs, report)
    by_rank = {len(c.shape): c for c in subject.cases}
    for case in dict.fromkeys((subject.cases[0], by_rank[max(by_rank)])):
        _check_strides(subject, formula, make_inputs(case, ORDINARY, torch.float32, 5), report)
    if inputs.case.is_one_row:
        return
    level = 3.0 if norm.centered else 0.0  # nothing to divide by, but eps
    constant = dataclasses.replace(inputs, x=torch.full_like(inputs.x, level))
    _expect(subject, formula, constant, "constant input", report, allowed=1e-2)
    scope = subject.scope
    if "empty input" not in norm.may_fail and scope.empty:
        _check_empty(subject, inputs, report, norm.trailing)
    single = inputs.case.shape[0] > 1 and scope.batch_of_one
    if "batch of one" not in norm.may_fail and single:
        one = dataclasses.replace(inputs.case, shape=(1, *inputs.case.shape[1:]))
        alone = dataclasses.replace(inputs, case=one, x=inputs.x[:1], dy=inputs.dy[:1])
        _expect(subject, formula, alone, "batch of one", report)


def _expect(
    subject: ForeignNorm,
    formula: Formula,
    inputs: Inputs,
    name: str,
    report: Report,
    allowed: float | None = None,
) -> None:
    """What the formula gives, where that is finite."""
    want = oracle(formula, inputs, backward=False).y
    if want.isfinite().all():
        report.checks.append(name)
        report.cases += 1
        allowed = _GROSS * float(want.abs().max()) if allowed is None else allowed
        failure = _try(subject, inputs, want, allowed, name)
        report.failures += [failure] if failure else []


def check_unchanged(subject: ForeignNorm, report: Report) -> None:
    """Neither input, parameters nor upstream gradient are written into."""
    inputs = make_inputs(subject.cases[0], ORDINARY, torch.float32, seed=5)
    try:
        damaged = _damaged(subject, inputs)
    except Exception:  # a layer that cannot be called is reported by the next check
        return
    report.checks.append("input unchanged")
    report.cases += 1
    if damaged:
        text = f"the layer writes into its {damaged} (in-place damage)"
        report.failures.append(make_failure("input unchanged", text, "in_place"))
        return
    if not subject.scope.backward:
        return
    dy = inputs.dy.clone()
    y, _ = subject(inputs.case, inputs.x.clone().requires_grad_(), inputs.weight, inputs.bias)
    if not (isinstance(y, Tensor) and y.requires_grad and y.shape == dy.shape):
        return
    report.checks.append("upstream gradient unchanged")
    report.cases += 1
    with contextlib.suppress(Exception):  # reported by the checks of gradients
        y.backward(dy)
    if not torch.equal(dy, inputs.dy):
        text = "the backward pass writes into the upstream gradient (in-place damage)"
        report.failures.append(make_failure("upstream gradient unchanged", text, "in_place"))


def _damaged(subject: ForeignNorm, inputs: Inputs) -> str:
    """What a call has changed; empty if nothing."""
    before = [inputs.x, inputs.weight, inputs.bias]
    for training in (True, False) if isinstance(subject, ForeignModule) else (True,):
        x, weight, bias = now = [None if t is None else t.clone() for t in before]
        assert x is not None
        try:
            with torch.no_grad():
                subject(inputs.case, x, weight, bias, training=training)
        except Exception:
            if training:
                raise
            break  # what raises in evaluation is reported by its own check
        for name, a, b in zip(("input", "weight", "bias"), now, before, strict=True):
            if a is not None and b is not None and not torch.equal(a, b):
                return name
    return ""


def _check_eps_argument(
    subject: ForeignFunction, formula: Formula, inputs: Inputs, report: Report
) -> None:
    name = "eps argument"
    report.checks.append(name)
    report.cases += 1
    eps = 100.0 if formula.eps_placement == "clamp" else 0.1  # a small bound would not bind
    want = oracle(formula.replace(eps=eps), inputs, backward=False).y
    failure = _try(subject, inputs, want, _GROSS * float(want.abs().max()), name, eps=eps)
    if failure is not None:
        text = f"eps={eps:g} gives another output than the formula with eps {eps:g}"
        text = failure.message if failure.mistake else text
        report.failures.append(Failure(name, text, failure.mistake or name.replace(" ", "_")))


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


def _check_strides(subject: ForeignNorm, formula: Formula, inputs: Inputs, report: Report) -> None:
    name = "strided input"
    if name not in report.checks:
        report.checks.append(name)
    for layout, x in _layouts(inputs.x):
        if any(f.check == name for f in report.failures):
            return
        laid = dataclasses.replace(inputs, x=x)
        expected = oracle(formula, laid, backward=False).y
        if not expected.isfinite().all():
            continue
        report.cases += 1
        allowed = _GROSS * max(1.0, float(expected.abs().max()))
        failure = _try(subject, laid, expected, allowed, name)
        if subject.scope.backward:
            failure = failure or _try_backward(subject, laid, name)
        copy = dataclasses.replace(laid, x=x.contiguous())
        if failure is not None and _try(subject, copy, expected, allowed, name) is None:
            text = f"{layout} is not handled: {failure.message}"
            report.failures.append(make_failure(name, text, "non_contiguous"))


def _gradients(
    subject: ForeignNorm, inputs: Inputs, x: Tensor, dy: Tensor
) -> list[tuple[str, Tensor]]:
    x, (_, weight, bias) = x.detach().requires_grad_(), inputs.leaves(x.dtype)
    y, leaves = subject(inputs.case, x, weight, bias)
    if not y.requires_grad:
        return []
    named = zip(("input", "weight", "bias"), (x, *leaves), strict=False)
    asked = {name: t for name, t in named if t is not None}
    y.backward(dy)  # not torch.autograd.grad, which checkpoints that reenter refuse
    return [(name, t.grad) for name, t in asked.items() if t.grad is not None]


def _try_backward(subject: ForeignNorm, inputs: Inputs, name: str) -> Failure | None:
    """The gradients are the same for a strided input, and for upstream gradients that are."""
    dy = inputs.dy
    copied = dy[:1].expand(dy.shape)  # as a sum over the batch gives it
    try:
        for given in (dy.transpose(0, -1).contiguous().transpose(0, -1), copied):
            contiguous = given.clone(memory_format=torch.contiguous_format)
            right = _gradients(subject, inputs, inputs.x.contiguous(), contiguous)
            got = dict(_gradients(subject, inputs, inputs.x, given))
            for role, expected in right:
                wrong = max_error(got[role], expected) if role in got else torch.inf
                largest = max(1.0, float(expected.abs().max()))
                if not wrong <= 10 * _GROSS * largest and expected.isfinite().all():
                    text = f"with an upstream gradient of strides {given.stride()}, that by the "
                    return Failure(name, f"{text}{role} is off by {wrong:.1e}")
    except Exception as error:  # the layer under test may fail in any way
        return Failure(name, f"the backward pass raises {type(error).__name__}: {error}")
    return None


def _check_empty(subject: ForeignNorm, inputs: Inputs, report: Report, by_token: bool) -> None:
    """No rows in, no rows out. A channel norm that refuses them is noted, not charged."""
    empty = inputs.x.new_zeros(0, *inputs.x.shape[1:])
    failure = _try(subject, dataclasses.replace(inputs, x=empty), empty, 0.0, "empty input")
    if failure is not None and failure.mistake and not by_token:
        report.notes.append(f"empty input: {failure.message}")
        return
    report.checks.append("empty input")
    report.cases += 1
    if failure is not None:
        report.failures.append(make_failure("empty input", failure.message, "empty_input"))


def _try(
    subject: ForeignNorm, inputs: Inputs, expected: Tensor, allowed: float, name: str, **call: Any
) -> Failure | None:
    """What is wrong with one output; a mistake is named where the layer raises."""
    try:
        with torch.no_grad():
            got, _ = subject(inputs.case, inputs.x, inputs.weight, inputs.bias, **call)
    except Exception as error:  # the layer under test may fail in any way
        article = "an" if name.startswith("e") else "a"
        text = f"raises when it is given {article} {name}: {type(error).__name__}: {error}"
        return Failure(name, text, name.replace(" ", "_") + "_raises")
    if got.shape != expected.shape:
        shapes = f"the output has shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
        return Failure(name, shapes)
    wrong = max_error(got, expected)
    return None if wrong <= allowed else Failure(name, f"the output is off by {wrong:.1e}")


def check_double_backward(subject: ForeignNorm, formula: Formula, report: Report) -> None:
    """The gradient of a function of the gradient agrees with the formula's."""
    report.checks.append("double backward")
    report.cases += 1
    inputs = make_inputs(subject.cases[0], ORDINARY, torch.float32, seed=7)
    x64, weight, bias = inputs.leaves(torch.float64)
    y64 = formula_for(formula, inputs.case)(x64, weight, bias)
    expected = _second(y64, x64, inputs.dy.double())
    x = inputs.x.clone().requires_grad_()
    try:
        y, _ = subject(inputs.case, x, inputs.weight, inputs.bias)
        got = _second(y, x, inputs.dy)
    except Exception as error:  # the layer under test may fail in any way
        what = "module" if isinstance(subject, ForeignModule) else "function"
        text = f"the {what} cannot be differentiated twice: {error}"
        report.failures.append(Failure("double backward", text, "once"))
        return
    difference = max_error(got, expected)
    if not difference <= _GROSS * float(expected.abs().max()):
        text = f"the second derivative is off by {difference:.1e}"
        report.failures.append(Failure("double backward", text, "second"))


def _second(y: Tensor, x: Tensor, dy: Tensor) -> Tensor:
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
    (second,) = torch.autograd.grad(dx.square().sum(), x)
    return second
