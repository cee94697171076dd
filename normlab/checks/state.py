"""Running statistics: what is recorded, with which weight, and what evaluation does with it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from normlab.checks.formula import Formula
from normlab.checks.report import Failure, Report
from normlab.checks.subject import FunctionSubject, ModuleSubject
from normlab.checks.tolerances import max_error
from normlab.checks.trials import AnySubject, Regime, Trial, formula_for, make_trial

__all__ = ["check_evaluation", "check_running", "check_same_in_evaluation"]

_BATCH = Regime("batch", 1.3, 0.8, 8.0)
_STEPS = (1, 2, 5)


def _declared_momentum(subject: AnySubject, declared: float | None) -> float | None:
    if declared is not None:
        return declared
    if isinstance(subject, ModuleSubject):
        for part in subject.module.modules():
            if hasattr(part, "momentum"):
                value = part.momentum
                return None if value is None else float(value)  # type: ignore[arg-type]
        return 0.1
    return 0.3  # passed to the function


def _expected_running(
    formula: Formula, trials: list[Trial], momentum: float | None, *, bessel: bool, start: Tensor
) -> Tensor:
    mean, var = start[0].clone(), start[1].clone()
    for step, trial in enumerate(trials, start=1):
        weight = 1 / step if momentum is None else momentum
        shaped = formula_for(formula, trial.case).replace(divisor="n-1" if bessel else "n")
        batch_mean, batch_var, _ = shaped.statistics(trial.x.double())
        by_channel = (-1, len(mean))  # instance norm records the mean over the samples
        mean = (1 - weight) * mean + weight * batch_mean.reshape(by_channel).mean(0)
        var = (1 - weight) * var + weight * batch_var.reshape(by_channel).mean(0)
    return torch.stack([mean, var])


def _observed_running(
    subject: AnySubject, trials: list[Trial], momentum: float | None, start: Tensor
) -> tuple[Tensor, bool]:
    """Running statistics after the trials, and whether they hang on the autograd graph."""
    if isinstance(subject, FunctionSubject):
        mean, var = start[0].float(), start[1].float()
        for t in trials:
            x = t.x.clone().requires_grad_()
            rate = 0.3 if momentum is None else momentum
            subject(t.case, x, t.weight, t.bias, running=(mean, var), momentum=rate)
        return torch.stack([mean.detach(), var.detach()]).double(), (
            mean.requires_grad or var.requires_grad
        )
    module = subject.prepare(torch.float32, trials[0].weight, trials[0].bias, tuple(start.float()))
    module.train()
    for t in trials:
        module(t.x.clone().requires_grad_())
    running = subject.running_of(module)
    assert running is not None
    attached = any(b.requires_grad for b in running)
    return torch.stack([b.detach() for b in running]).double(), attached


def check_running(
    subject: AnySubject, formula: Formula, report: Report, declared_momentum: float | None
) -> None:
    """Running mean and variance after one, two and five batches."""
    if not subject.has_running:
        report.notes.append("running statistics: the module has no buffers for them")
        return
    report.checks.append("running statistics")
    momentum = _declared_momentum(subject, declared_momentum)
    case = subject.cases[0]
    size = case.parameter_shape[0]
    # cumulative averages (momentum None) forget where they start, others do not
    start = torch.stack([torch.linspace(-1, 1, size), torch.linspace(0.5, 2, size)]).double()
    for steps in _STEPS:
        trials = [make_trial(case, _BATCH, torch.float32, seed=40 + s) for s in range(steps)]
        try:
            got, attached = _observed_running(subject, trials, momentum, start)
        except Exception as error:  # the layer under test may fail in any way
            report.failures.append(
                Failure("running statistics", f"{type(error).__name__}: {error}")
            )
            return
        if attached:
            report.failures.append(
                Failure(
                    "running statistics",
                    "the running statistics stay in the autograd graph, which grows with every "
                    "batch; update them without gradient",
                    "running_in_graph",
                )
            )
            return
        bessel = _expected_running(formula, trials, momentum, bessel=True, start=start)
        if _close(got, bessel):
            continue
        report.failures.append(_running_failure(formula, trials, momentum, start, got, steps))
        return


def _close(got: Tensor, expected: Tensor) -> bool:
    return max_error(got, expected) <= 1e-4 * float(expected.abs().max())


def _running_failure(
    formula: Formula,
    trials: list[Trial],
    momentum: float | None,
    start: Tensor,
    got: Tensor,
    steps: int,
) -> Failure:
    def expected(rate: float | None, bessel: bool) -> Tensor:
        return _expected_running(formula, trials, rate, bessel=bessel, start=start)

    where = f"after {steps} batch{'es' if steps > 1 else ''}"
    candidates: list[tuple[str, str, Tensor]] = [
        (
            "running_var_biased",
            "the running variance is the biased one; torch stores it times n / (n - 1)",
            expected(momentum, False),
        ),
        ("not_updated", "the running statistics do not move", start),
    ]
    if momentum is not None:
        for bessel in (True, False):
            candidates.append(
                (
                    "momentum_reversed",
                    "momentum is the weight of the old value; in torch it is that of the new batch"
                    + ("" if bessel else ", and the variance is the biased one"),
                    expected(1 - momentum, bessel),
                )
            )
    for name, sentence, value in candidates:
        if _close(got, value):
            return Failure("running statistics", f"{where}: {sentence}", name)
    return Failure(
        "running statistics",
        f"{where}: off by {max_error(got, expected(momentum, True)):.1e}, no known mistake "
        "explains it",
    )


def check_evaluation(subject: AnySubject, formula: Formula, report: Report) -> None:
    """Evaluation normalizes with the running statistics, keeps them, and they are saved."""
    case = subject.cases[0]
    trial = make_trial(case, _BATCH, torch.float32, seed=50)
    size = case.parameter_shape[0]
    running = (torch.linspace(-1, 1, size), torch.linspace(0.5, 2, size))
    if not subject.has_running:
        _check_saved_state(subject, report)
        return
    report.checks.append("evaluation")
    before = tuple(t.clone() for t in running)
    with torch.no_grad():
        try:
            got, _ = subject(
                case, trial.x, trial.weight, trial.bias, training=False, running=running
            )
        except Exception as error:  # the layer under test may fail in any way
            report.failures.append(Failure("evaluation", f"{type(error).__name__}: {error}"))
            return
    weight = None if trial.weight is None else trial.weight.double()
    bias = None if trial.bias is None else trial.bias.double()
    shaped = formula_for(formula, case)
    x = trial.x.double()
    expected = shaped.evaluate(x, running[0].double(), running[1].double(), weight, bias)
    if not _close(got, expected):
        if _close(got, shaped(x, weight, bias)):
            report.failures.append(
                Failure(
                    "evaluation",
                    "evaluation normalizes with the statistics of the batch, not with the running "
                    "ones",
                    "eval_uses_batch",
                )
            )
        else:
            report.failures.append(
                Failure("evaluation", f"the output is off by {max_error(got, expected):.1e}")
            )
    if not all(torch.equal(a, b) for a, b in zip(before, running, strict=True)):
        report.failures.append(
            Failure("evaluation", "evaluation changes the running statistics", "eval_updates")
        )
    _check_saved_state(subject, report)


def check_same_in_evaluation(subject: AnySubject, report: Report) -> None:
    """A norm without running statistics does in evaluation what it does in training."""
    if not isinstance(subject, ModuleSubject):
        return
    report.checks.append("evaluation")
    t = make_trial(subject.cases[0], _BATCH, torch.float32, seed=50)
    with torch.no_grad():
        training, _ = subject(t.case, t.x, t.weight, t.bias, training=True)
        evaluation, _ = subject(t.case, t.x, t.weight, t.bias, training=False)
    if not _close(evaluation, training):
        text = "the output in evaluation differs from that in training"
        report.failures.append(Failure("evaluation", text, "eval_differs"))


def _check_saved_state(subject: AnySubject, report: Report) -> None:
    """A module that is saved and loaded evaluates as before."""
    if not isinstance(subject, ModuleSubject):
        return
    report.checks.append("saved state")
    case = subject.cases[0]
    trained = copy.deepcopy(subject.module).train()
    fresh = copy.deepcopy(subject.module)
    with torch.no_grad():
        for seed in (60, 61, 62):
            trained(make_trial(case, _BATCH, torch.float32, seed=seed).x)
        fresh.load_state_dict(trained.state_dict())
        x = make_trial(case, _BATCH, torch.float32, seed=63).x
        same = torch.equal(trained.eval()(x), fresh.eval()(x))
    if not same:
        report.failures.append(
            Failure(
                "saved state",
                "after save and load the module evaluates differently: running statistics that "
                "are plain attributes, not buffers, are lost",
                "state_lost",
            )
        )
