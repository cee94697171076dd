"""Running statistics: what is recorded, and with which weight."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import torch
from torch import Tensor

from normlab.checks.changes import update_running
from normlab.checks.formula import Formula
from normlab.checks.inputs import BATCH, NEAR_EPS, Inputs, formula_for, make_inputs
from normlab.checks.mistakes import MISTAKES
from normlab.checks.probing import ForeignFunction, ForeignNorm
from normlab.checks.report import Failure, Report, make_failure
from normlab.checks.tolerances import max_error
from normlab.norms import NORMS, Case

_STEPS = (1, 2, 5)
# of the recorded statistics: with 8192 entries a channel Bessel's correction is 1e-4
_ROUNDING = 1e-5
# mistakes of the update, and of the variance that is recorded
_RATES = ("momentum_reversed", "cumulative")
_FACTORS = ("running_var_biased", "running_var_count", "running_var_twice")


def close(got: Tensor, expected: Tensor, relative: float = 1e-4) -> bool:
    """Whether two results differ by rounding in float32 alone."""
    return max_error(got, expected) <= relative * float(expected.abs().max())


def running_case(subject: ForeignNorm) -> Case:
    """A case with few entries for each channel, so that Bessel's correction can be seen."""
    case = subject.cases[0]
    small = tuple(min(n, 3 + i) for i, n in enumerate(case.shape[2:]))
    few = dataclasses.replace(case, shape=(min(case.shape[0], 4), case.shape[1], *small))
    if few == case or torch.Size(case.shape).numel() < 1000:
        return case
    t = make_inputs(few, BATCH, torch.float32, seed=0)
    try:
        with torch.no_grad():
            y, _ = subject(few, t.x, t.weight, t.bias)
    except Exception:  # the layer takes the shape it was given only
        return case
    return few if y.shape == t.x.shape else case


def _declared_momentum(subject: ForeignNorm, declared: float | None) -> float | None:
    if declared is not None:
        return declared
    if isinstance(subject, ForeignFunction):
        return 0.3 if subject.has_momentum else 0.1
    for part in subject.module.modules():
        if hasattr(part, "momentum"):
            value = part.momentum
            if value is None:  # torch's instance norms take it as 0, not as an average
                return None if NORMS[subject.like].over_batch else 0.0
            return float(value)  # type: ignore[arg-type]
    return 0.1


def _expected(
    formula: Formula,
    batches: list[Inputs],
    momentum: float | None,
    start: Tensor,
    mistakes: Collection[str] = (),
) -> Tensor:
    """Running mean and variance, perhaps with some mistakes."""
    running = start[0].clone(), start[1].clone()
    for step, inputs in enumerate(batches, start=1):
        shaped = formula_for(formula, inputs.case).replace(divisor="n")
        moments = shaped.statistics(inputs.x.double())
        update_running(mistakes, running, *moments, momentum, step, inputs.x.shape[0])
    return torch.stack(running)


def _observe(
    subject: ForeignNorm, batches: list[Inputs], momentum: float | None, start: Tensor
) -> tuple[Tensor, bool]:
    """Running statistics after the batches, and whether they hang on the autograd graph."""
    if isinstance(subject, ForeignFunction):
        mean, var = start[0].float(), start[1].float()
        for t in batches:
            x = t.x.clone().requires_grad_()
            rate = 0.3 if momentum is None else momentum
            subject(t.case, x, t.weight, t.bias, running=(mean, var), momentum=rate)
        attached = mean.requires_grad or var.requires_grad
        return torch.stack([mean.detach(), var.detach()]).double(), attached
    initial = (start[0].float(), start[1].float())
    module = subject.prepare(torch.float32, batches[0].weight, batches[0].bias, initial).train()
    for t in batches:
        # a gradient on the input and on the parameters, so that a graph would be kept
        module(t.x.clone().requires_grad_())
    running = subject.running_of(module)
    assert running is not None
    attached = any(b.requires_grad for b in running)
    return torch.stack([b.detach() for b in running]).double(), attached


def check_running(
    subject: ForeignNorm,
    formula: Formula,
    declared: Formula,
    report: Report,
    declared_momentum: float | None,
) -> None:
    """Running mean and variance after one, two and five batches.

    Either `formula`, as the layer is in training, mistakes included, or `declared` is right. The
    module's own momentum counts where none is declared.
    """
    if not subject.has_running:
        report.notes.append("running statistics: there are none")
        return
    check = "running statistics"
    report.checks.append(check)
    momentum = _declared_momentum(subject, declared_momentum)
    case = running_case(subject)
    size = case.parameter_shape[0]
    # cumulative averages (momentum None) forget where they start, others do not
    start = torch.stack([torch.linspace(-1, 1, size), torch.linspace(0.5, 2, size)]).double()
    small = torch.stack([torch.linspace(-5e-3, 5e-3, size), torch.linspace(1e-6, 1e-4, size)])
    runs = [(BATCH, steps, start) for steps in _STEPS] + [(NEAR_EPS, 1, small.double())]
    for scale, steps, start in runs:
        batches = [make_inputs(case, scale, torch.float32, seed=40 + s) for s in range(steps)]
        try:
            with torch.set_grad_enabled(steps != 2):  # recorded with gradients and without
                got, attached = _observe(subject, batches, momentum, start)
        except Exception as error:  # the layer under test may fail in any way
            text = f"raises when it records: {type(error).__name__}: {error}"
            report.failures.append(Failure(check, text, "running_raises"))
            return
        report.cases += 1
        if attached:
            says = MISTAKES["running_in_graph"].says
            report.failures.append(make_failure(check, says, "running_in_graph"))
            return
        right = (_expected(f, batches, momentum, start) for f in (formula, declared))
        if not any(close(got, r, _ROUNDING) for r in right):
            name, text = _explain(declared, batches, momentum, start, got)
            if name is None:
                name, text = _explain(formula, batches, momentum, start, got)
            where = f"after {steps} batch{'es' if steps > 1 else ''}"
            report.failures.append(make_failure(check, f"{where}: {text}", name))
            return


def _explain(
    formula: Formula, batches: list[Inputs], momentum: float | None, start: Tensor, got: Tensor
) -> tuple[str | None, str]:
    """The mistake of the update, of the variance, or both, that gives these values."""
    rates: list[tuple[str, str, float | None]] = [("", "", momentum)]
    if momentum is not None:
        rates += [(name, MISTAKES[name].says, momentum) for name in _RATES]
    single = _estimate_rate(formula, batches, start, got)
    if single is not None:
        wanted = "1 / step" if momentum is None else f"{momentum:.3g}"
        rates.append(("other_momentum", f"momentum is {single:.3g}, expected {wanted}", single))
    factors = [("", ""), *((name, MISTAKES[name].says) for name in _FACTORS)]
    for rate_name, rate_text, rate in rates:
        for factor_name, factor_text in factors:
            if factor_name == "running_var_count" and batches[0].x.shape[0] == 1:
                continue
            value = _expected(formula, batches, rate, start, (rate_name, factor_name))
            names = "+".join(n for n in (rate_name, factor_name) if n)
            if names and close(got, value, _ROUNDING):
                return names, ", and ".join(t for t in (rate_text, factor_text) if t)
    if close(got, start):
        return "not_updated", MISTAKES["not_updated"].says
    right = _expected(formula, batches, momentum, start)
    for row, what in ((0, "mean"), (1, "variance")):
        if close(got[1 - row], right[1 - row]) and close(got[row], start[row]):
            return "not_updated", f"the running {what} does not move"
    if momentum is not None and len(batches) == 1 and close(got[0], right[0]):
        added = (got[1] - right[1]) / (momentum * max(formula.eps, 1e-300))
        if ((added > 0.7) & (added < 1.6)).all():  # with Bessel's correction or without
            return "running_var_with_eps", MISTAKES["running_var_with_eps"].says
    return None, f"off by {max_error(got, right):.1e}, no known mistake explains it"


def _estimate_rate(
    formula: Formula, batches: list[Inputs], start: Tensor, got: Tensor
) -> float | None:
    """The weight of the new batch that the running mean shows after one step."""
    if len(batches) > 1:
        return None
    target = _expected(formula, batches, 1.0, start)[0]
    toward = target - start[0]
    rate = float((got[0] - start[0]).dot(toward) / toward.square().sum())
    return rate if 1e-3 < rate < 1 else None
