"""Gradients at several scales, in float32."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch

from normlab.checks.diagnosis import Diagnosis
from normlab.checks.frozen import WORDS
from normlab.checks.gradient_diagnosis import explain_gradient, explain_parameter
from normlab.checks.inputs import SHIFTED, SMALL, ULPS, Comparison, Inputs, Results
from normlab.checks.report import Failure, Finding, Note, excess_failure
from normlab.checks.tolerances import max_error
from normlab.checks.trial import Trial


def check_gradients(
    trial: Trial, scales: Sequence[Sequence[Comparison]], known: Collection[str]
) -> Iterator[Finding]:
    """Compare the gradients by input, weight and bias; each is reported once for a scale.

    Args:
        trial: the layer.
        scales: the calls at each scale.
        known: mistakes of the forward pass, which show in the gradients and are charged once.
    """
    right = [[(c, trial.expect(c.inputs)) for c in comparisons] for comparisons in scales]
    for key in WORDS:
        if key in trial.layer.fixed:
            yield Note(f"gradient by {WORDS[key]}, which is not a parameter")
            continue
        failed = False
        for comparisons in right:
            found = (_compare(trial, c, want, key, known, failed) for c, want in comparisons)
            failure = next(filter(None, found), None)
            if failure is not None:
                failed = True
                yield failure


def _compare(
    trial: Trial,
    c: Comparison,
    expected: Results,
    key: str,
    known: Collection[str],
    failed_before: bool,
) -> Failure | None:
    scale = c.inputs.scale
    check, what = f"gradient, {scale.name}", WORDS[key]
    if key not in expected:
        return None
    if key not in c.got:
        text = f"by {what}: there is none, it is cut from the graph"
        return Failure(check, text, f"no_{key}")
    want, got = expected[key], c.got[key]
    if got.numel() != want.numel():
        text = f"by {what}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
        return Failure(check, text, "unreduced")
    got = got.reshape(want.shape)
    budget = c.budget(key, want, ulps=4 * ULPS)
    if key == "dx":
        budget = max(budget, 4 * ULPS * _subtracted(trial, c.inputs))
    error = max_error(got, want)
    if error <= budget or ("one_pass" in known and scale is not SMALL):
        return None
    evidence = c.evidence(trial.actual, got, budget)
    diagnosis = (
        explain_gradient(evidence) if key == "dx" else explain_parameter(evidence, key, want)
    )
    if diagnosis.mistake is None and scale is SHIFTED:
        if failed_before:
            return None  # wrong without a shift, and said so
        diagnosis = Diagnosis("one_pass", "the error grows with the mean: sums cancel")
    if diagnosis.mistake in known:
        return None
    sentence = f"by {what}: {diagnosis.sentence}"
    return excess_failure(check, sentence, diagnosis.mistake, error / budget)


def _subtracted(trial: Trial, inputs: Inputs) -> float:
    """Rounding of the terms whose difference is dx: they are as large as rstd · weight · dy."""
    shaped = trial.actual.at(inputs.case)
    _, var, count = shaped.statistics(inputs.x.double())
    rstd = float((1 / shaped.denominator(var, count)).abs().max())
    weight = 1.0
    if inputs.weight is not None:
        weight = float((inputs.weight + shaped.weight_offset).abs().max())
    return rstd * weight * float(inputs.dy.abs().max()) * torch.finfo(torch.float32).eps / 4
