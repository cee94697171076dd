"""Forward and backward values at several scales, in float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.checks.cases import Case, Outcome
from normlab.checks.diagnosis import (
    Diagnosis,
    Evidence,
    explain_forward,
    explain_gradient,
    explain_parameter,
)
from normlab.checks.formula import Formula
from normlab.checks.report import Failure, Report
from normlab.checks.subject import FunctionSubject
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

__all__ = ["check_values"]

_SEEDS = (0, 1, 2)
_ULPS = 32  # a few roundings per operation, in any order of summation, for up to 1e3 terms
ORDINARY = Regime("ordinary input", rms=1.0, mean=0.0, factor=8.0)
SMALL = Regime("small input", rms=3e-3, mean=0.0, factor=8.0)
# a mean rounded to float32 costs torch as much as anybody; mean(x²) - mean(x)² costs a
# thousand times more
SHIFTED = Regime("shifted input", rms=1.0, mean=1e3, factor=32.0)


@dataclass
class _Result:
    regime: Regime
    trial: Trial
    got: Outcome
    theirs: Outcome  # torch in float32
    right: Outcome  # torch's conventions in float64: its error is `theirs` minus this

    def budget(self, key: str, expected: Tensor, *, ulps: int) -> float:
        torch_error = max_error(getattr(self.theirs, key), getattr(self.right, key))
        return error_budget(
            expected, torch.float32, torch_error, factor=self.regime.factor, ulps=ulps
        )

    def evidence(self, formula: Formula, got: Tensor, budget: float) -> Evidence:
        t = self.trial
        weight, bias = (None if p is None else p.double() for p in (t.weight, t.bias))
        shaped = formula_for(formula, t.case)
        return Evidence(shaped, t.x.double(), weight, bias, got.double(), budget, t.dy.double())


def check_values(subject: AnySubject, formula: Formula, report: Report) -> Formula | None:
    """Compare outputs and gradients with the formula; record what differs.

    Returns:
        the formula that describes the layer as it is, mistakes included, so that later checks
        report only what is wrong besides; None where later checks would make no sense.
    """
    results: dict[str, list[_Result]] = {}
    skipped: dict[Case, str] = {}
    for regime in (ORDINARY, SMALL, SHIFTED):
        report.checks += [regime.name, f"gradient, {regime.name}"]
        results[regime.name] = []
        for case in subject.cases:
            for seed in _SEEDS:
                trial = make_trial(case, regime, torch.float32, seed)
                try:
                    got = observe(subject, trial)
                except Exception as error:  # the layer under test may fail in any way
                    text = f"{type(error).__name__} for an input of shape {case.shape}: {error}"
                    if case.lacks_parameters and isinstance(subject, FunctionSubject):
                        skipped.setdefault(case, f"weight or bias None: {text}")
                        break
                    report.failures.append(Failure("call", text))
                    return None
                if not _well_formed(got.y, trial, report):
                    return None
                theirs = torch_baseline(formula.like, trial, torch.float32)
                right = oracle(torch_formula(formula.like), trial)
                results[regime.name].append(_Result(regime, trial, got, theirs, right))

    report.notes += skipped.values()
    actual = _check_forward(results, formula, report)
    if actual is not None:
        for regime in (ORDINARY, SMALL, SHIFTED):
            _check_gradients(results[regime.name], actual, report)
    return actual


def _well_formed(y: Tensor, trial: Trial, report: Report) -> bool:
    if y.shape != trial.x.shape:
        report.failures.append(
            Failure(
                "shape",
                f"an input of shape {tuple(trial.x.shape)} gives an output of shape "
                f"{tuple(y.shape)}; expected the input's shape",
            )
        )
    elif y.dtype != trial.x.dtype:
        report.failures.append(
            Failure("dtype", f"float32 input gives {y.dtype} output", "output_dtype")
        )
    else:
        return True
    return False


def _forward_evidence(results: list[_Result], formula: Formula) -> tuple[list[Evidence], float]:
    """Evidence of every call, and the worst error in units of its budget."""
    evidence, worst = [], 0.0
    for r in results:
        expected = oracle(formula, r.trial, backward=False).y
        e = r.evidence(formula, r.got.y, r.budget("y", expected, ulps=_ULPS))
        evidence.append(e)
        worst = max(worst, max_error(e.got, expected) / e.budget)
    return evidence, worst


def _check_forward(
    results: dict[str, list[_Result]], formula: Formula, report: Report
) -> Formula | None:
    centered_results = results[ORDINARY.name] + results[SMALL.name]
    evidence, worst = _forward_evidence(centered_results, formula)
    actual, diagnosis = formula, None
    if worst > 1:
        diagnosis = explain_forward(evidence)
        actual = formula.replace(**(diagnosis.changes or {}))
    _, shifted = _forward_evidence(results[SHIFTED.name], actual)
    # an error that grows a hundredfold with the mean is cancellation, and explains small
    # errors at mean 0 as well
    explained = diagnosis is None or diagnosis.changes is not None
    cancels = shifted > 1 and (explained or (worst < 1e3 and shifted > 10 * worst))
    if diagnosis is not None and not (cancels and diagnosis.changes is None):
        for regime in (ORDINARY, SMALL):
            _, here = _forward_evidence(results[regime.name], formula)
            if here > 1:
                report.failures.append(_failure(regime.name, diagnosis, here))
        if diagnosis.changes is None:
            report.notes.append("gradients and other inputs, because the output is wrong")
            return None
    if cancels:
        sentence = (
            "the error grows with the mean: the variance looks like mean(x²) - mean(x)² in one "
            "pass, which cancels"
        )
        report.failures.append(_failure(SHIFTED.name, Diagnosis("one_pass", sentence), shifted))
    return actual


def _failure(check: str, diagnosis: Diagnosis, ratio: float) -> Failure:
    return Failure(
        check, f"{diagnosis.sentence} (error {ratio:.1e} times the allowed)", diagnosis.mistake
    )


def _check_gradients(results: list[_Result], formula: Formula, report: Report) -> None:
    known = {f.mistake for f in report.failures if f.mistake}
    for r in results:
        name = f"gradient, {r.regime.name}"
        expected = oracle(formula, r.trial)
        for key, what in (("dx", "the input"), ("dweight", "the weight"), ("dbias", "the bias")):
            want, got = getattr(expected, key), getattr(r.got, key)
            if want is None:
                continue
            if got is None:
                report.failures.append(
                    Failure(
                        name, f"by {what}: there is none, it is cut from the graph", f"no_{key}"
                    )
                )
                return
            if got.numel() != want.numel():
                text = f"by {what}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
                report.failures.append(Failure(name, text, "unreduced"))
                return
            got = got.reshape(want.shape)
            budget = max(
                r.budget(key, want, ulps=4 * _ULPS),
                4 * _ULPS * _subtracted(formula, r.trial) if key == "dx" else 0.0,
            )
            error = max_error(got, want)
            if error <= budget or ("one_pass" in known and r.regime is not SMALL):
                continue
            if key == "dx":
                diagnosis = explain_gradient(r.evidence(formula, got, budget))
            else:
                diagnosis = explain_parameter(got, want)
            if diagnosis.mistake is None and r.regime is SHIFTED:
                diagnosis = Diagnosis("one_pass", "the error grows with the mean: sums cancel")
            if diagnosis.mistake in known:
                continue
            sentence = Diagnosis(diagnosis.mistake, f"by {what}: {diagnosis.sentence}")
            report.failures.append(_failure(name, sentence, error / budget))
            return


def _subtracted(formula: Formula, trial: Trial) -> float:
    """Rounding of the terms whose difference is dx: they are as large as rstd · weight · dy."""
    shaped = formula_for(formula, trial.case)
    _, var, _ = shaped.statistics(trial.x.double())
    rstd = float(shaped.divide(torch.ones_like(var), var).abs().max())
    weight = 1.0
    if trial.weight is not None:
        weight = float((trial.weight + formula.weight_offset).abs().max())
    return rstd * weight * float(trial.dy.abs().max()) * torch.finfo(torch.float32).eps / 4
