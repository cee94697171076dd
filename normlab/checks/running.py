"""Running statistics: what is recorded, and with which weight."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.changes import update_running
from normlab.checks.formula import Formula
from normlab.checks.inputs import BATCH, NEAR_EPS, Inputs, make_inputs
from normlab.checks.mistakes import MISTAKES
from normlab.checks.probing import ForeignFunction
from normlab.checks.report import Failure, Finding, Note, Ran, make_failure
from normlab.checks.tolerances import close, max_error
from normlab.checks.trial import Trial

_STEPS = (1, 2, 12)
# of the recorded statistics: with 8192 entries a channel Bessel's correction is 1e-4
_ROUNDING = 1e-5
# mistakes of the update, and of the variance that is recorded
_RATES = ("momentum_reversed", "cumulative", "first_replaces")
_FACTORS = ("running_var_biased", "running_var_count", "running_var_twice")


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
        shaped = formula.at(inputs.case).replace(divisor="n")
        moments = shaped.statistics(inputs.x.double())
        update_running(mistakes, running, *moments, momentum, step, inputs.x.shape[0])
    return torch.stack(running)


def _observe(
    trial: Trial, batches: list[Inputs], momentum: float | None, start: Tensor
) -> tuple[Tensor, bool]:
    """Running statistics after the batches, and whether they hang on the autograd graph."""
    layer = trial.layer
    running: tuple[Tensor, Tensor] | None = (start[0].float(), start[1].float())
    if isinstance(layer, ForeignFunction):
        for t in batches:
            x = t.x.clone().requires_grad_()
            rate = 0.3 if momentum is None else momentum
            layer(t.case, x, t.weight, t.bias, running=running, momentum=rate)
    else:
        first = batches[0]
        module = layer.prepare(torch.float32, first.weight, first.bias, running).train()
        for buffer in module.buffers() if momentum is None else ():  # a plain average counts calls
            if buffer.numel() == 1 and not buffer.is_floating_point():
                buffer.zero_()
        for t in batches:
            # a gradient on the input and on the parameters, so that a graph would be kept
            module(t.x.clone().requires_grad_())
        running = layer.running_of(module)
    assert running is not None
    attached = any(b.requires_grad for b in running)
    return torch.stack([b.detach() for b in running]).double(), attached


def check_running(trial: Trial) -> Iterator[Finding]:
    """Running mean and variance after one, two and twelve batches.

    Either the formula of the layer as it is in training, mistakes included, or the declared one is
    right. The module's own momentum counts where none is declared.
    """
    layer, norm, name = trial.layer, trial.norm, "running statistics"
    if not layer.has_running:
        if norm.over_batch:
            yield Note(f"{name}: there are none")
        return
    yield Ran(name, 0)
    momentum = layer.declared_momentum if trial.momentum is None else trial.momentum
    case = trial.small_case
    size = case.parameter_shape[0]
    # cumulative averages (momentum None) forget where they start, others do not
    start = torch.stack([torch.linspace(-1, 1, size), torch.linspace(0.5, 2, size)]).double()
    small = torch.stack([torch.linspace(-5e-3, 5e-3, size), torch.linspace(1e-6, 1e-4, size)])
    runs = [(BATCH, steps, start) for steps in _STEPS] + [(NEAR_EPS, 1, small.double())]
    for scale, steps, start in runs:
        batches = [make_inputs(case, scale, seed=40 + s) for s in range(steps)]
        try:
            with torch.set_grad_enabled(steps != 2):  # recorded with gradients and without
                got, attached = _observe(trial, batches, momentum, start)
        except Exception as error:  # the layer under test may fail in any way
            text = f"raises when it records: {type(error).__name__}: {error}"
            yield Failure(name, text, "running_raises")
            return
        yield Ran(name)
        if attached:
            yield make_failure(name, MISTAKES["running_in_graph"].message, "running_in_graph")
            return
        formulas = trial.actual, trial.declared
        right = (_expected(f, batches, momentum, start) for f in formulas)
        if not any(close(got, r, _ROUNDING) for r in right):
            mistake, text = _explain(trial.declared, batches, momentum, start, got)
            if mistake is None:
                mistake, text = _explain(trial.actual, batches, momentum, start, got)
            if "cumulative" in (mistake or "") and steps == 1:  # a second batch tells what it is
                batches.append(make_inputs(case, scale, seed=41))
                got, _ = _observe(trial, batches, momentum, start)
                mistake, text = _explain(trial.declared, batches, momentum, start, got)
            where = f"after {steps} batch{'es' if steps > 1 else ''}"
            yield make_failure(name, f"{where}: {text}", mistake)
            return


def check_buffers(layer: Any) -> Iterator[Finding]:
    """Nothing in a frozen batch norm is trained; a ValueError where it is no module."""
    if not isinstance(layer, nn.Module):
        raise ValueError("layer: a frozen batch norm is a module with buffers; got a function")
    yield Ran("parameters", 0)
    trained = [name for name, p in layer.named_parameters() if p.requires_grad]
    if trained:
        text = f"{', '.join(trained)}: a parameter, which an optimizer moves"
        yield make_failure("parameters", text, "not_frozen")


def check_fixed(trial: Trial, fixed: tuple[Tensor, Tensor]) -> Iterator[Finding]:
    """A call in training leaves the statistics of a frozen batch norm as they are."""
    yield Ran("running statistics")
    t, running = make_inputs(trial.small_case, BATCH, seed=40), (fixed[0].float(), fixed[1].float())
    trial.layer(t.case, *t.given, running=running)
    for what, now, before in zip(("mean", "variance"), running, fixed, strict=True):
        if not torch.equal(now.double(), before):
            text = f"training moves the running {what}"
            yield make_failure("running statistics", text, "frozen_moves")


def _explain(
    formula: Formula, batches: list[Inputs], momentum: float | None, start: Tensor, got: Tensor
) -> tuple[str | None, str]:
    """The mistake of the update, of the variance, or both, that gives these values."""
    rates: list[tuple[str, str, float | None]] = [("", "", momentum)]
    if momentum is not None:
        rates += [(name, MISTAKES[name].message, momentum) for name in _RATES]
    single = _estimate_rate(formula, batches, start, got)
    if single is not None:
        wanted = "1 / step" if momentum is None else f"{momentum:.3g}"
        rates.append(("other_momentum", f"momentum is {single:.3g}, expected {wanted}", single))
    factors = [("", ""), *((name, MISTAKES[name].message) for name in _FACTORS)]
    for rate_name, rate_text, rate in rates:
        for factor_name, factor_text in factors:
            if factor_name == "running_var_count" and batches[0].x.shape[0] == 1:
                continue
            value = _expected(formula, batches, rate, start, (rate_name, factor_name))
            names = "+".join(n for n in (rate_name, factor_name) if n)
            if names and close(got, value, _ROUNDING):
                return names, ", and ".join(t for t in (rate_text, factor_text) if t)
    if close(got, start):
        return "not_updated", MISTAKES["not_updated"].message
    right = _expected(formula, batches, momentum, start)
    for row, what in ((0, "mean"), (1, "variance")):
        if close(got[1 - row], right[1 - row]) and close(got[row], start[row]):
            return "not_updated", f"the running {what} does not move"
    if momentum is not None and len(batches) == 1 and close(got[0], right[0]):
        added = (got[1] - right[1]) / (momentum * max(formula.eps, 1e-300))
        if ((added > 0.7) & (added < 1.6)).all():  # with Bessel's correction or without
            return "running_var_with_eps", MISTAKES["running_var_with_eps"].message
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
