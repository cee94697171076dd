"""Gradients at several scales, in float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from normlab.checks.candidates import Diagnosis
from normlab.checks.comparison import ULPS, Comparison, excess_failure
from normlab.checks.formula import Formula
from normlab.checks.gradient_diagnosis import explain_gradient, explain_parameter
from normlab.checks.inputs import SHIFTED, SMALL, Inputs, Outcome, formula_for, oracle
from normlab.checks.probing.modules import ForeignNorm
from normlab.checks.report import Failure, Report
from normlab.checks.tolerances import max_error

_NAMES = {"dx": "the input", "dweight": "the weight", "dbias": "the bias"}


def check_gradients(
    subject: ForeignNorm, scales: Sequence[Sequence[Comparison]], formula: Formula, report: Report
) -> None:
    """Compare the gradients by input, weight and bias; each is reported once for a scale."""
    # one mistake of the forward pass shows in the gradients, too, and is charged once
    known = {f.mistake for f in report.failures if f.mistake}
    failed: set[str] = set()
    right = [[(c, oracle(formula, c.inputs)) for c in comparisons] for comparisons in scales]
    for key in _NAMES:
        if key in subject.fixed:
            report.notes.append(f"gradient by {_NAMES[key]}, which is not a parameter")
            continue
        for comparisons in right:
            for c, expected in comparisons:
                failure = _compare(c, expected, key, formula, known, key in failed)
                if failure is not None:
                    failed.add(key)
                    report.failures.append(failure)
                    break


def _compare(
    c: Comparison,
    expected: Outcome,
    key: str,
    formula: Formula,
    known: set[str],
    failed_before: bool,
) -> Failure | None:
    check, what = f"gradient, {c.scale.name}", _NAMES[key]
    want, got = getattr(expected, key), getattr(c.got, key)
    if want is None:
        return None
    if got is None:
        text = f"by {what}: there is none, it is cut from the graph"
        return Failure(check, text, f"no_{key}")
    if got.numel() != want.numel():
        text = f"by {what}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
        return Failure(check, text, "unreduced")
    got = got.reshape(want.shape)
    budget = c.budget(key, want, ulps=4 * ULPS)
    if key == "dx":
        budget = max(budget, 4 * ULPS * _subtracted(formula, c.inputs))
    error = max_error(got, want)
    if error <= budget or ("one_pass" in known and c.scale is not SMALL):
        return None
    evidence = c.evidence(formula, got, budget)
    if key == "dx":
        diagnosis = explain_gradient(evidence)
    else:
        diagnosis = explain_parameter(got, evidence, key, want)
    if diagnosis.mistake is None and c.scale is SHIFTED:
        if failed_before:
            return None  # wrong without a shift, and said so
        diagnosis = Diagnosis("one_pass", "the error grows with the mean: sums cancel")
    if diagnosis.mistake in known:
        return None
    sentence = Diagnosis(diagnosis.mistake, f"by {what}: {diagnosis.sentence}")
    return excess_failure(check, sentence, error / budget)


def _subtracted(formula: Formula, inputs: Inputs) -> float:
    """Rounding of the terms whose difference is dx: they are as large as rstd · weight · dy."""
    shaped = formula_for(formula, inputs.case)
    _, var, count = shaped.statistics(inputs.x.double())
    rstd = float((1 / shaped.denominator(var, count)).abs().max())
    weight = 1.0
    if inputs.weight is not None:
        weight = float((inputs.weight + formula.weight_offset).abs().max())
    return rstd * weight * float(inputs.dy.abs().max()) * torch.finfo(torch.float32).eps / 4
