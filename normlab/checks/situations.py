"""Situations that ordinary inputs leave out: large, signed, double, alone, frozen, and twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from normlab.checks.formula import Formula
from normlab.checks.inputs import (
    ORDINARY,
    BackwardFailed,
    Inputs,
    Outcome,
    make_inputs,
    observe,
    oracle,
)
from normlab.checks.probing import ForeignFunction, ForeignModule, ForeignNorm
from normlab.checks.report import Report, make_failure
from normlab.checks.tolerances import max_error
from normlab.norms import NORMS, Case

_GROSS = 1e-3  # the values were checked elsewhere: here only a gross difference counts
_HALF = 0.1  # of a gradient whose terms were each rounded to 16 bits
_LARGE = 1100  # rows or positions: more than a block of a fused kernel has
_ENTRIES = 300_000
_CALLS = 12
# which call is differentiated, and when
_BACKWARDS = (
    (0, "after a second call"),
    (1, "where it is added to that of another call"),
    (0, "at a second backward pass"),
)
_WHAT = {
    "y": "the output",
    "dx": "the gradient by the input",
    "dweight": "the gradient by the weight",
    "dbias": "the gradient by the bias",
}


def check_situations(subject: ForeignNorm, formula: Formula, report: Report) -> None:
    """Output and gradients where only the size, the sign or the history of a call is unusual.

    Args:
        subject: the layer.
        formula: of the layer.
        report: filled, unless values or gradients failed, which would show here again.
    """
    if any("float16" not in f.check and f.check != "saved state" for f in report.failures):
        return
    before = len(report.failures)
    for name, inputs, allowed in _situations(subject, formula):
        half = name.removeprefix("gradient, ")
        if "float16" in half and f"{half}, unit input" not in report.checks:
            continue  # refused, which is said already
        report.cases += 1
        try:
            got = observe(subject, inputs)
            if got.y.dtype != inputs.x.dtype == torch.float64:
                report.notes.append(f"{name}: the output has dtype {got.y.dtype}")
            text = differs(subject, formula, inputs, got, allowed)
        except Exception as error:  # the layer under test may fail in any way
            backward = isinstance(error, BackwardFailed)
            words = f"its backward pass raises {error}" if backward else _named(error)
            text = f"for an input of shape {inputs.case.shape} {words}"
            if inputs.x.dtype != torch.float32 and not backward:
                report.notes.append(f"{name}: {text}")  # not every dtype is everybody's
                continue
        if name not in report.checks:
            report.checks.append(name)
        mistake = "factor_of_0" if name == "factor of 0" else None
        report.failures += [make_failure(name, text, mistake)] if text else []
    if len(report.failures) == before:
        _check_use(subject, formula, report)


def _named(error: Exception) -> str:
    return f"it raises {type(error).__name__}: {error}"


def _situations(subject: ForeignNorm, formula: Formula) -> Iterator[tuple[str, Inputs, float]]:
    """Inputs, the name of their check, and how far the results may be off."""
    case, scope, norm = subject.cases[0], subject.scope, NORMS[formula.like]
    for larger in _larger(subject, formula.like):
        yield "large input", make_inputs(larger, ORDINARY, torch.float32, seed=21), _GROSS
    if scope.double:
        yield "float64 input", make_inputs(case, ORDINARY, torch.float64, seed=22), _GROSS
    inputs = make_inputs(case, ORDINARY, torch.float32, seed=23)
    if inputs.weight is not None:
        signed = torch.linspace(-2.0, 1.7, inputs.weight.numel()).view(inputs.weight.shape)
        one_off = signed.clone()
        one_off.view(-1)[signed.numel() // 2 :][:1] = -formula.weight_offset
        for name, weight in (("weight of either sign", signed), ("factor of 0", one_off)):
            yield name, dataclasses.replace(inputs, weight=weight), _GROSS
    if not scope.backward or case.is_one_row:
        return
    for dtype in scope.half:
        name = str(dtype).removeprefix("torch.")
        yield f"gradient, {name}", make_inputs(case, ORDINARY, dtype, seed=24), _HALF
    sizes = [0] if norm.trailing and scope.empty else []
    sizes += [1] if scope.batch_of_one and "batch of one" not in norm.may_fail else []
    for size in sizes:
        few = dataclasses.replace(case, shape=(size, *case.shape[1:]))
        inputs = make_inputs(few, ORDINARY, torch.float32, seed=25)
        yield "batch of one" if size else "empty input", inputs, _GROSS


def _larger(subject: ForeignNorm, like: str) -> Iterator[Case]:
    """Many rows; many positions, too, and for a function many features, where it has them."""
    case, norm = subject.cases[0], NORMS[like]
    rows = min(_LARGE, _ENTRIES // max(1, torch.Size(case.shape[1:]).numel()))
    if not case.is_one_row and rows > case.shape[0]:
        yield dataclasses.replace(case, shape=(rows, *case.shape[1:]))
    if norm.trailing and isinstance(subject, ForeignFunction):
        shape = (2, 4 * _LARGE)
        yield dataclasses.replace(
            case, shape=shape, parameter_shape=norm.parameter_shape(shape), normalized_ndim=1
        )


def differs(
    subject: ForeignNorm, formula: Formula, inputs: Inputs, got: Outcome, allowed: float = _GROSS
) -> str:
    """Which result of a call is grossly wrong; empty if none is."""
    backward = subject.scope.backward
    want = oracle(formula, inputs, backward=backward)
    for key, what in _WHAT.items():
        right, value = getattr(want, key), getattr(got, key)
        if right is None or key in subject.fixed or (key != "y" and not backward):
            continue
        if value is None or value.numel() != right.numel():
            return f"{what} is missing" if value is None else f"{what} has another shape"
        error = max_error(value.reshape(right.shape), right)
        largest = float(right.abs().max()) if right.numel() else 0.0
        if not error <= allowed * max(1.0, largest):
            return f"{what} is off by {error:.1e}"
    return ""


def _check_use(subject: ForeignNorm, formula: Formula, report: Report) -> None:
    """One layer called twice before its backward passes, often, and with an input that is fixed."""
    report.checks.append("used again")
    report.cases += 1
    first, second = (
        make_inputs(subject.cases[0], ORDINARY, torch.float32, seed=s) for s in (26, 27)
    )
    second = dataclasses.replace(second, weight=first.weight, bias=first.bias)
    try:
        text = _use(subject, formula, first, second)
    except Exception as error:  # the layer under test may fail in any way
        text = f"where it is used again, {_named(error)}"
    report.failures += [make_failure("used again", text, "used_again")] if text else []


def _calls(
    subject: ForeignNorm, inputs: Inputs
) -> Callable[[Tensor], tuple[Tensor, Sequence[Tensor | None]]]:
    """The same copy at each call, with the same leaves."""
    _, weight, bias = inputs.leaves(torch.float32)
    if not isinstance(subject, ForeignModule):
        return lambda x: subject(inputs.case, x, weight, bias)
    module = subject.prepare(torch.float32, weight, bias).train()
    named = dict(module.named_parameters())
    leaves = [named.get(name or "") for name in (subject.weight_name, subject.bias_name)]
    return lambda x: (module(x), leaves)


def _use(subject: ForeignNorm, formula: Formula, first: Inputs, second: Inputs) -> str:
    """What is wrong with a second use; empty if nothing is."""
    call, given = _calls(subject, first), (first, second)
    xs = [inputs.x.clone().requires_grad_() for inputs in given]
    ys = [call(xs[0])[0]]
    kept = ys[0].detach().clone()
    y, leaves = call(xs[1])
    ys.append(y)
    if not torch.equal(kept, ys[0].detach()):
        return "a second call writes into the output of the first"
    right = [oracle(formula, inputs) for inputs in given]
    if _far(ys[1], right[1].y):
        return "the output is wrong at a second call"
    backward = subject.scope.backward
    roles = [
        (key, leaf)
        for key, leaf in zip(("dweight", "dbias"), leaves, strict=False)
        if backward and leaf is not None and getattr(right[0], key) is not None
    ]
    total = {key: torch.zeros(()) for key, _ in roles}
    for k, when in _BACKWARDS if backward and ys[0].requires_grad else ():
        xs[k].grad = None
        ys[k].backward(given[k].dy.clone(), retain_graph=True)
        total = {key: value + getattr(right[k], key) for key, value in total.items()}
        for key, leaf, want in (
            ("dx", xs[k], right[k].dx),
            *((key, leaf, total[key]) for key, leaf in roles),
        ):
            if _far(leaf.grad, want):
                return f"{_WHAT[key]} is wrong {when}"
        if not torch.equal(xs[k].detach(), given[k].x):
            return "the backward pass writes into the input"
    for _, leaf in roles:
        leaf.grad = None
    y, _ = call(first.x.clone())
    if roles and y.requires_grad:
        y.backward(first.dy.clone())
    for key, leaf in roles:
        if _far(leaf.grad, getattr(right[0], key)):
            return f"{_WHAT[key]} is wrong where the input needs none"
    with torch.no_grad():
        for _ in range(_CALLS):
            call(second.x.clone())
        y, _ = call(first.x.clone())
    return f"after {_CALLS} more calls the output is another" if _far(y, right[0].y) else ""


def _far(got: Tensor | None, want: Tensor | None) -> bool:
    if got is None or want is None:
        return want is not None
    allowed = _GROSS * max(1.0, float(want.abs().max()))
    return not max_error(got.reshape(want.shape), want) <= allowed
