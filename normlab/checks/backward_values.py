"""Gradients at several scales, in float32."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from normlab.checks.diagnosis import Diagnosis
from normlab.checks.frozen import WORDS
from normlab.checks.gradient_diagnosis import explain_gradient, explain_parameter
from normlab.checks.inputs import SHIFTED, SMALL, Comparison, Inputs, Results, roundings
from normlab.checks.report import Failure, Finding, Note, excess_failure
from normlab.checks.tolerances import max_error
from normlab.checks.trial import Trial


@dataclass(frozen=True)
class _Wrong:
    """What is wrong with a gradient at one scale."""

    check: str
    word: str  #: by what it is taken
    sentence: str
    mistake: str | None
    excess: float | None = None  #: its error in units of what is allowed

    def failure(self, others: Sequence[_Wrong] = ()) -> Failure:
        """For the report, together with others of which the same is said."""
        *most, last = [wrong.word for wrong in (self, *others)]
        sentence = f"by {', '.join(most)}{' and ' * bool(most)}{last}: {self.sentence}"
        if self.excess is None:
            return Failure(self.check, sentence, self.mistake)
        largest = max(wrong.excess or 0.0 for wrong in (self, *others))
        return excess_failure(self.check, sentence, self.mistake, largest)


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
    unexplained: dict[tuple[str, str], list[_Wrong]] = {}
    for key in WORDS:
        if key in trial.layer.fixed:
            yield Note(f"gradient by {WORDS[key]}, which is not a parameter")
            continue
        failed = False
        for comparisons in right:
            found = (_compare(trial, c, want, key, known, failed) for c, want in comparisons)
            wrong = next(filter(None, found), None)
            if wrong is None:
                continue
            failed = True
            if wrong.mistake is None:
                text = f"{_ranks(trial, comparisons, key)}{wrong.sentence}"
                wrong = replace(wrong, sentence=text)
                unexplained.setdefault((wrong.check, text), []).append(wrong)
            else:
                yield wrong.failure()
    for first, *others in unexplained.values():
        yield first.failure(others)


def _measure(
    trial: Trial, c: Comparison, want: Tensor, got: Tensor, key: str
) -> tuple[float, float]:
    """The error of a gradient, and what is allowed."""
    budget = c.budget(key, want)
    if key == "dx":
        budget = max(budget, roundings(torch.float32, key) * _subtracted(trial, c.inputs))
    return max_error(got, want), budget


def _ranks(trial: Trial, comparisons: Sequence[tuple[Comparison, Results]], key: str) -> str:
    """For which numbers of axes a gradient is right, where that decides; else nothing."""
    ranks: dict[int, dict[bool, set[int]]] = {}  # by number of normalized axes
    for c, expected in comparisons:
        if key in expected and key in c.got and c.got[key].numel() == expected[key].numel():
            want, case = expected[key], c.inputs.case
            error, budget = _measure(trial, c, want, c.got[key].reshape(want.shape), key)
            seen = ranks.setdefault(case.normalized_ndim, {True: set(), False: set()})
            seen[error <= budget].add(len(case.shape))
    for seen in ranks.values():
        right, wrong = sorted(seen[True]), sorted(seen[False])
        if right and wrong and right[-1] < wrong[0]:
            return f"right for {' and '.join(map(str, right))} axes, wrong for {wrong[0]} or more: "
    return ""


def _compare(
    trial: Trial,
    c: Comparison,
    expected: Results,
    key: str,
    known: Collection[str],
    failed_before: bool,
) -> _Wrong | None:
    scale = c.inputs.scale
    check, what = f"gradient, {scale.name}", WORDS[key]
    if key not in expected:
        return None
    if key not in c.got:
        return _Wrong(check, what, "there is none, it is cut from the graph", f"no_{key}")
    want, got = expected[key], c.got[key]
    if got.numel() != want.numel():
        text = f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
        return _Wrong(check, what, text, "unreduced")
    got = got.reshape(want.shape)
    error, budget = _measure(trial, c, want, got, key)
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
    return _Wrong(check, what, diagnosis.sentence, diagnosis.mistake, error / budget)


def _subtracted(trial: Trial, inputs: Inputs) -> float:
    """Rounding of the terms whose difference is dx: they are as large as rstd · weight · dy."""
    shaped = trial.actual.at(inputs.case)
    _, var, count = shaped.statistics(inputs.x.double())
    rstd = float((1 / shaped.denominator(var, count)).abs().max())
    weight = 1.0
    if inputs.weight is not None:
        weight = float((inputs.weight + shaped.weight_offset).abs().max())
    return rstd * weight * float(inputs.dy.abs().max()) * torch.finfo(torch.float32).eps / 4
