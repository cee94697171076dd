"""Half precision, awkward inputs, and second derivatives."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.checks.cases import Case
from normlab.checks.formula import Formula
from normlab.checks.report import Failure, Report
from normlab.checks.subject import FunctionSubject, ModuleSubject
from normlab.checks.tolerances import error_budget, max_error
from normlab.checks.trials import (
    AnySubject,
    Regime,
    Trial,
    formula_for,
    make_trial,
    observe,
    oracle,
    torch_baseline,
    torch_formula,
)

__all__ = ["check_double_backward", "check_half_precision", "check_handling"]

_UNIT = Regime("unit", 1.0, 0.0, 8.0)
# squares of 300 are infinite in float16, whose largest number is 65504
_LARGE = Regime("large", 300.0, 0.0, 8.0)


def _half_expected(formula: Formula, trial: Trial, weight_cast: str) -> Tensor:
    x = trial.x.double()
    shaped = formula_for(formula, trial.case)
    x_hat = shaped.normalize(x)
    if weight_cast == "after":
        x_hat = x_hat.to(trial.x.dtype).double()
    weight = None if trial.weight is None else trial.weight.double()
    bias = None if trial.bias is None else trial.bias.double()
    return shaped.affine(x, x_hat, weight, bias)


def check_half_precision(
    subject: AnySubject, formula: Formula, report: Report, weight_cast: str
) -> None:
    """16-bit input gives 16-bit output, computed from statistics that do not overflow."""
    for dtype, regime in (
        (torch.bfloat16, _UNIT),
        (torch.float16, _UNIT),
        (torch.float16, _LARGE),
    ):
        name = f"{str(dtype).removeprefix('torch.')}, {regime.name} input"
        case = subject.cases[0]
        trial = make_trial(case, regime, dtype, seed=0)
        try:
            got = observe(subject, trial, backward=False).y
        except Exception as error:  # 16 bits are not everybody's; that is no wrong norm
            report.notes.append(f"{name}: {type(error).__name__}: {error}")
            continue
        report.checks.append(name)
        if got.dtype != dtype:
            report.failures.append(
                Failure(
                    name,
                    f"the output has dtype {got.dtype}; expected that of the input, {dtype}",
                    "output_dtype",
                )
            )
            continue
        expected = _half_expected(formula, trial, weight_cast)
        theirs = torch_baseline(formula.like, trial, dtype, backward=False).y
        right = oracle(torch_formula(formula.like), trial, backward=False).y
        # one rounding of the output, and one more for each of weight and bias in 16 bits
        budget = error_budget(
            expected, dtype, max_error(theirs, right), factor=regime.factor, ulps=4
        )
        difference = max_error(got, expected)
        if not difference <= budget:
            report.failures.append(
                Failure(
                    name,
                    "the statistics look computed in half precision; square and sum in float32. "
                    f"Error {difference:.1e}, allowed {budget:.1e}",
                    "half_precision_statistics",
                )
            )


def _call(subject: AnySubject, trial: Trial, x: Tensor) -> Tensor:
    with torch.no_grad():
        y, _ = subject(trial.case, x, trial.weight, trial.bias)
    return y


def check_handling(subject: AnySubject, formula: Formula, report: Report) -> None:
    """The input survives, and strided, constant and empty inputs are handled."""
    trial = make_trial(subject.cases[0], _UNIT, torch.float32, seed=5)
    expected = oracle(formula, trial, backward=False).y
    # the values were checked elsewhere: here only a gross difference counts
    allowed = 1e-3 * float(expected.abs().max())

    report.checks.append("input unchanged")
    x = trial.x.clone()
    _call(subject, trial, x)
    if not torch.equal(x, trial.x):
        report.failures.append(
            Failure(
                "input unchanged", "the layer writes into its input (in-place damage)", "in_place"
            )
        )

    if isinstance(subject, FunctionSubject) and subject.takes_eps:
        report.checks.append("eps argument")
        want = oracle(formula.replace(eps=0.1), trial, backward=False).y
        with torch.no_grad():
            got, _ = subject(trial.case, trial.x, trial.weight, trial.bias, eps=0.1)
        if not max_error(got, want) <= allowed:
            text = "eps=0.1 gives another output than the formula with eps 0.1"
            report.failures.append(Failure("eps argument", text, "eps_argument"))

    report.checks.append("strided input")
    spread = torch.zeros(*trial.x.shape, 2)
    spread[..., 0] = trial.x
    _try(subject, trial, spread[..., 0], expected, allowed, "strided input", report)

    if trial.case.normalized_ndim < len(trial.case.shape):
        report.checks.append("constant input")
        constant = Trial(
            trial.case, torch.full_like(trial.x, 3.0), trial.weight, trial.bias, trial.dy
        )
        want = oracle(formula, constant, backward=False).y
        if want.isfinite().all():
            _try(subject, constant, constant.x, want, 1e-2, "constant input", report)

    shape = (0, *trial.case.shape[1:])
    if formula.like in ("layer_norm", "rms_norm") and len(shape) > trial.case.normalized_ndim:
        report.checks.append("empty input")
        _try(
            subject,
            trial,
            trial.x.new_zeros(shape),
            trial.x.new_zeros(shape),
            0.0,
            "empty input",
            report,
        )
    if formula.like != "batch_norm" and trial.case.shape[0] > 1:
        one = Case(**(vars(trial.case) | {"shape": (1, *trial.case.shape[1:])}))
        report.checks.append("batch of one")
        alone = Trial(one, trial.x[:1], trial.weight, trial.bias, trial.dy[:1])
        want = expected[:1]
        _try(subject, alone, trial.x[:1], want, allowed, "batch of one", report)


def _try(
    subject: AnySubject,
    trial: Trial,
    x: Tensor,
    expected: Tensor,
    allowed: float,
    name: str,
    report: Report,
) -> None:
    try:
        got = _call(subject, trial, x)
    except Exception as error:  # the layer under test may fail in any way
        report.failures.append(Failure(name, f"{type(error).__name__}: {error}"))
        return
    if got.shape != expected.shape:
        report.failures.append(
            Failure(
                name, f"the output has shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
            )
        )
    elif not max_error(got, expected) <= allowed:
        report.failures.append(
            Failure(name, f"the output is off by {max_error(got, expected):.1e}")
        )


def check_double_backward(subject: AnySubject, formula: Formula, report: Report) -> None:
    """The gradient of a function of the gradient agrees with the formula's."""
    report.checks.append("double backward")
    trial = make_trial(subject.cases[0], _UNIT, torch.float32, seed=7)
    x64 = trial.x.double().requires_grad_()
    weight = None if trial.weight is None else trial.weight.double()
    bias = None if trial.bias is None else trial.bias.double()
    y64 = formula_for(formula, trial.case)(x64, weight, bias)
    expected = _second(y64, x64, trial.dy.double())

    x = trial.x.clone().requires_grad_()
    module = isinstance(subject, ModuleSubject)
    try:
        y, _ = subject(trial.case, x, trial.weight, trial.bias)
        got = _second(y, x, trial.dy)
    except RuntimeError as error:
        what = "module" if module else "function"
        report.failures.append(
            Failure(
                "double backward", f"the {what} cannot be differentiated twice: {error}", "once"
            )
        )
        return
    difference = max_error(got, expected)
    allowed = 1e-3 * float(expected.abs().max())
    if not difference <= allowed:
        report.failures.append(
            Failure(
                "double backward", f"the second derivative is off by {difference:.1e}", "second"
            )
        )


def _second(y: Tensor, x: Tensor, dy: Tensor) -> Tensor:
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
    (second,) = torch.autograd.grad(dx.square().sum(), x)
    return second
