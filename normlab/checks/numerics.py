"""Forward and backward values at several scales, in float32."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from normlab.checks.backward_values import check_gradients
from normlab.checks.candidates import Diagnosis
from normlab.checks.comparison import ULPS, Comparison, excess_failure
from normlab.checks.diagnosis import Evidence, explain_forward, explains
from normlab.checks.formula import Formula
from normlab.checks.inputs import (
    ORDINARY,
    SHIFTED,
    SMALL,
    BackwardFailed,
    Inputs,
    NoTensor,
    Outcome,
    Scale,
    formula_for,
    make_inputs,
    observe,
    oracle,
)
from normlab.checks.mistakes import MISTAKES
from normlab.checks.probing import ForeignFunction, ForeignNorm
from normlab.checks.refusals import attribute_refusal, call_each, charge_refusals, takes
from normlab.checks.report import Failure, Report, make_failure
from normlab.checks.tolerances import max_error
from normlab.norms import NORMS, Case

_NEAR_EPS = "input near eps"
_CALL = "call"
_PROBES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14)


def _scales(formula: Formula) -> list[Scale]:
    """Ordinary, small, and, where eps is far from 1e-5, inputs of the size at which it shows."""
    near = {"inside": formula.eps**0.5, "outside": formula.eps, "clamp": formula.floor(1)}[
        formula.eps_placement
    ]
    if NORMS[formula.like].spread == "sum of squares":
        near /= 10  # up to a hundred entries are together as long as that
    scales = [ORDINARY, SMALL]
    if near > 0 and not 1 / 3 < near / SMALL.rms < 3:
        scales.append(Scale(_NEAR_EPS, rms=near, mean=0.0, factor=8.0))
    return scales


def check_values(
    subject: ForeignNorm, formula: Formula, report: Report, seeds: Sequence[int]
) -> Formula | None:
    """Compare outputs and gradients with the formula; record what differs.

    Returns:
        the formula that describes the layer as it is, mistakes included, so that later checks
        report only what is wrong besides; None where later checks would make no sense.
    """
    formula = _read_clamp(subject, formula)
    results: dict[str, list[Comparison]] = {}
    report.checks.append(_CALL)
    scales = [*_scales(formula), SHIFTED]
    backward = subject.scope.backward
    for scale in scales:
        report.checks += [scale.name, *([f"gradient, {scale.name}"] if backward else [])]
        found = _compare(subject, formula, scale, report, seeds)
        if found is None:
            return None
        results[scale.name] = found
        report.cases += len(found)
    centered = [r for scale in scales[:-1] for r in results[scale.name]]
    actual = _check_forward(subject, centered, results[SHIFTED.name], formula, report)
    if actual is not None:
        if _centers_otherwise(actual):
            del results[SHIFTED.name]
        if backward:
            check_gradients(subject, list(results.values()), actual, report)
    return actual


def _compare(
    subject: ForeignNorm, formula: Formula, scale: Scale, report: Report, seeds: Sequence[int]
) -> list[Comparison] | None:
    """Every case at one scale; None where the outputs cannot be compared.

    What the layer refuses is charged to it, unless it may, and is no case from here on.
    """

    main = subject.scope.dtype

    def call(case: Case, dtype: torch.dtype = main) -> list[tuple[Inputs, Outcome]]:
        several = (make_inputs(case, scale, dtype, seed) for seed in seeds)
        return [(inputs, _observe(subject, inputs, report)) for inputs in several]

    try:
        taken, refused = call_each(subject.cases, call)
    except BackwardFailed as error:
        report.failures.append(_backward_failure(subject, error, call))
        return None
    except NoTensor as error:
        raise ValueError(f"layer: could not be tested: {error}") from error
    if refused:
        case, text = next(iter(refused.items()))
        if scale is not ORDINARY:  # at another scale it takes them all
            text = f"raises when it is given {scale.name}: {text}"
            report.failures.append(Failure(_CALL, text, "scale_raises"))
        elif not charge_refusals(subject, _CALL, refused, list(taken), call, report):
            kinds = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
            others = [d for d in kinds if d != main]
            taken_by = [d for d in others if takes(case, functools.partial(call, dtype=d))]
            raise ValueError(f"layer: could not be tested: {_explain(case, text, taken_by, main)}")
    subject.cases = list(taken)
    found = []
    for inputs, got in (each for calls in taken.values() for each in calls):
        if not _well_formed(got.y, inputs, report):
            return None
        found.append(Comparison.of(scale, inputs, got, formula.like))
    return found or None


def _explain(
    case: Case, text: str, others: Sequence[torch.dtype], main: torch.dtype = torch.float32
) -> str:
    """Why a layer could not be tested, and what would help; `others` are dtypes that it takes."""
    if others:
        name, mine = (str(d).removeprefix("torch.") for d in (others[0], main))
        either = "" if others[0] == torch.float64 else f"Pass dtype={name!r}, or cast "
        return (
            f"{mine} input is refused, {name} input is not: {text}. {either or 'Cast '}inside of "
            "the layer to the dtype that it needs, and back"
        )
    given = [name for name in ("weight", "bias") if getattr(case, name)]
    return (
        f"it raises for every input, the first time{' with ' * bool(given)}{' and '.join(given)}: "
        f"{text}. Pass the shape of an input that it takes, such as shape=(4, 16)"
    )


def _observe(subject: ForeignNorm, inputs: Inputs, report: Report) -> Outcome:
    """One call; a function that needs running statistics gets them."""
    try:
        return observe(subject, inputs)
    except (BackwardFailed, NoTensor):
        raise
    except Exception as error:  # the layer under test may fail in any way
        function = isinstance(subject, ForeignFunction) and subject.has_running
        if not function or subject.needs_running:  # type: ignore[union-attr]
            raise
        subject.needs_running = True  # type: ignore[union-attr]
        try:
            outcome = observe(subject, inputs)
        except Exception:
            subject.needs_running = False  # type: ignore[union-attr]
            raise error from None
        text = f"{type(error).__name__}: {error}"
        if subject.admits_none("running_mean"):
            sentence = f"raises when it is given no running statistics: {text}"
            report.failures.append(make_failure(_CALL, sentence, "no_running_raises"))
        else:
            report.notes.append(f"running statistics None: {text}")
        return outcome


def _backward_failure(
    subject: ForeignNorm, error: BackwardFailed, call: Callable[[Case], object]
) -> Failure:
    if "invalid gradient" in str(error):
        sentence = "the gradient by the weight or bias is not summed over the other axes: "
        return Failure("backward", f"{sentence}{error}", "unreduced")
    given = attribute_refusal(subject, error.case, call, ()).given
    text = f"the backward pass raises when the layer is given {given}: {error}"
    return Failure("backward", text, "backward_raises")


def _well_formed(y: Tensor, inputs: Inputs, report: Report) -> bool:
    if y.shape != inputs.x.shape:
        sentence = f"an input of shape {tuple(inputs.x.shape)} gives an output of shape "
        sentence += f"{tuple(y.shape)}; expected the input's shape"
        report.failures.append(Failure("shape", sentence))
    elif y.dtype != inputs.x.dtype:
        sentence = f"{str(inputs.x.dtype).removeprefix('torch.')} input gives {y.dtype} output"
        report.failures.append(make_failure("dtype", sentence, "output_dtype"))
    else:
        return True
    return False


def _forward_evidence(results: list[Comparison], formula: Formula) -> tuple[list[Evidence], float]:
    """Evidence of every call, and the worst error in units of its budget."""
    evidence, worst = [], 0.0
    for r in results:
        expected = oracle(formula, r.inputs, backward=False).y
        e = r.evidence(formula, r.got.y, r.budget("y", expected, ulps=ULPS))
        evidence.append(e)
        worst = max(worst, max_error(e.got, expected) / e.budget)
    return evidence, worst


def _probes(subject: ForeignNorm, formula: Formula) -> list[Evidence]:
    """Calls without bias at ever smaller inputs, which show where eps is and how large."""
    found = []
    for rms in _PROBES:
        inputs = make_inputs(
            subject.cases[0], Scale("probe", rms, 0.0, 1.0), subject.scope.dtype, 9
        )
        if inputs.bias is not None:
            inputs.bias.zero_()
        got = observe(subject, inputs, backward=False).y.double()
        shaped = formula_for(formula, inputs.case)
        found.append(Evidence(shaped, *inputs.to(torch.float64), got, 0.0, probe=True))
    return found


def _read_clamp(subject: ForeignNorm, formula: Formula) -> Formula:
    """A declared clamp may bound the variance, the root or the norm: whichever the layer does."""
    if formula.eps_placement != "clamp":
        return formula
    try:
        probes = _probes(subject, formula)
    except Exception:  # a layer that cannot be called is reported by the checks
        return formula
    readings = (formula.replace(clamp_of=of) for of in ("variance", "root", "norm"))
    found = (f for f in readings if explains({"clamp_of": f.clamp_of}, probes))
    return next(found, formula)


def _centers_otherwise(formula: Formula) -> bool:
    """Then torch's error on shifted input says nothing about what may be lost there."""
    return formula.center_numerator is not None or formula.center_variance is not None


def _check_forward(
    subject: ForeignNorm,
    centered: list[Comparison],
    shifted_results: list[Comparison],
    formula: Formula,
    report: Report,
) -> Formula | None:
    evidence, worst = _forward_evidence(centered, formula)
    actual, diagnosis = formula, None
    if worst > 1:
        diagnosis = explain_forward(evidence + _probes(subject, formula))
        actual = formula.replace(**(diagnosis.changes or {}))
    _, shifted = _forward_evidence(shifted_results, actual)
    # an error that grows a hundredfold with the mean is cancellation, and explains small
    # errors at mean 0 as well
    explained = diagnosis is None or diagnosis.changes is not None
    cancels = shifted > 1 and (explained or (worst < 1e3 and shifted > 10 * worst))
    cancels = cancels and not _centers_otherwise(actual)
    if diagnosis is not None and not (cancels and diagnosis.changes is None):
        for name in dict.fromkeys(r.scale.name for r in centered):
            at_scale = [r for r in centered if r.scale.name == name]
            _, here = _forward_evidence(at_scale, formula)
            # what ordinary and small inputs show, those near eps need not show again
            shown = any(f.check in (ORDINARY.name, SMALL.name) for f in report.failures)
            if here > 1 and not (shown and name == _NEAR_EPS):
                wrong = sum(_forward_evidence([r], formula)[1] > 1 for r in at_scale)
                report.failures.append(excess_failure(name, diagnosis, here, wrong))
        if diagnosis.changes is None:
            report.notes.append("gradients and other inputs, because the output is wrong")
            return None
    if cancels:
        report.failures.append(
            excess_failure(SHIFTED.name, Diagnosis("one_pass", MISTAKES["one_pass"].says), shifted)
        )
    return actual
