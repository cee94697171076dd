"""Forward and backward values at several scales, in float32."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence

import torch

from normlab.checks.backward_values import check_gradients
from normlab.checks.diagnosis import ONE, explain_forward, explains
from normlab.checks.formula import Formula
from normlab.checks.inputs import (
    ORDINARY,
    SHIFTED,
    SMALL,
    Comparison,
    Evidence,
    Inputs,
    Results,
    Scale,
    make_inputs,
)
from normlab.checks.mistakes import MISTAKES
from normlab.checks.probing import ForeignFunction
from normlab.checks.refusals import attribute_refusal, report_refusals, takes
from normlab.checks.report import Failure, Finding, Note, Ran, excess_failure, make_failure
from normlab.checks.smallest import describe_smallest
from normlab.checks.tolerances import HALF
from normlab.checks.trial import BackwardFailed, NoTensor, Trial, call_each, name_of
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
        scales.append(Scale(_NEAR_EPS, rms=near))
    return scales


def give_running(trial: Trial, layer: ForeignFunction, seed: int) -> Iterator[Finding]:
    """A function that raises without running statistics gets some from here on."""
    for case in trial.cases:
        inputs = make_inputs(case, ORDINARY, trial.scope.dtype, seed=seed)
        error = layer.require_running(functools.partial(trial.observe, inputs))
        if error is None:
            continue
        text = f"{type(error).__name__}: {error}"
        if layer.admits_none("running_mean"):
            sentence = f"raises when it is given no running statistics: {text}"
            yield make_failure(_CALL, sentence, "no_running_raises")
        else:
            yield Note(f"running statistics None: {text}")
        return


def check_values(trial: Trial, seeds: Sequence[int]) -> Generator[Finding, None, Trial | None]:
    """Compare outputs and gradients with the declared formula.

    Returns:
        the trial with the cases that the layer takes, and with the formula that describes it as
        it is; None where later checks would make no sense.
    """
    trial = dataclasses.replace(trial, declared=_read_clamp(trial))
    results: dict[str, list[Comparison]] = {}
    yield Ran(_CALL, 0)
    backward = trial.scope.backward
    for scale in (*_scales(trial.declared), SHIFTED):
        yield Ran(scale.name, 0)
        if backward:
            yield Ran(f"gradient, {scale.name}", 0)
        found = yield from _compare(trial, scale, seeds)
        if not found:
            return None
        results[scale.name] = found
        yield Ran(scale.name, len(found))
        trial = dataclasses.replace(trial, cases=tuple(dict.fromkeys(c.inputs.case for c in found)))
    shifted = results.pop(SHIFTED.name)
    actual, failures = _judge_outputs(trial, list(results.values()), shifted)
    yield from failures
    if actual is None:
        yield Note("gradients and other inputs, because the output is wrong")
        return None
    trial = dataclasses.replace(trial, actual=actual)
    if backward:
        scales = [*results.values(), *([] if _centers_otherwise(actual) else [shifted])]
        yield from check_gradients(trial, scales, {f.mistake for f in failures if f.mistake})
    return trial


def _compare(
    trial: Trial, scale: Scale, seeds: Sequence[int]
) -> Generator[Finding, None, list[Comparison]]:
    """Every case at one scale; none where the outputs cannot be compared.

    What the layer refuses is charged to it, unless it may, and is no case from here on.
    """
    main = trial.scope.dtype

    def call(case: Case, dtype: torch.dtype = main) -> list[tuple[Inputs, Results]]:
        several = (make_inputs(case, scale, dtype, seed=seed) for seed in seeds)
        return [(inputs, trial.observe(inputs)) for inputs in several]

    try:
        taken, refused = call_each(trial.cases, call)
    except BackwardFailed as error:
        yield _backward_failure(trial, error, call)
        return []
    except NoTensor as error:
        raise ValueError(f"layer: could not be tested: {error}") from error
    if refused:
        case, text = next(iter(refused.items()))
        if scale is not ORDINARY:  # at another scale it takes them all
            text = f"raises when it is given {scale.name}: {text}"
            yield Failure(_CALL, text, "scale_raises")
        elif not (yield from report_refusals(trial, _CALL, refused, list(taken), call)):
            kinds = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
            others = [d for d in kinds if d != main]
            taken_by = [d for d in others if takes(case, functools.partial(call, dtype=d))]
            raise ValueError(f"layer: could not be tested: {_explain(trial, case, text, taken_by)}")
    found, like, backward = [], trial.layer.like, trial.scope.backward
    drawn = ((s, *c) for calls in taken.values() for s, c in zip(seeds, calls, strict=True))
    for seed, inputs, got in drawn:
        failure = _malformed(inputs, got)
        if failure is not None:
            yield failure
            return []
        found.append(Comparison.of_seed(inputs, got, like, seed, backward=backward))
    return found


def _explain(trial: Trial, case: Case, text: str, others: Sequence[torch.dtype]) -> str:
    """Why a layer could not be tested, and what would help; `others` are dtypes that it takes."""
    if others:
        name, mine = name_of(others[0]), name_of(trial.scope.dtype)
        either = "" if others[0] == torch.float64 else f"Pass dtype={name!r}, or cast "
        return (
            f"{mine} input is refused, {name} input is not: {text}. {either or 'Cast '}inside of "
            "the layer to the dtype that it needs, and back"
        )
    if trial.declared.cells(case) == 1:
        return f"{text}. Every mean is over one value ({ONE}): pass a shape with more"
    given = [name for name in ("weight", "bias") if getattr(case, name)]
    return (
        f"it raises for every input, the first time{' with ' * bool(given)}{' and '.join(given)}: "
        f"{text}. Pass the shape of an input that it takes, such as shape=(4, 16)"
    )


def _backward_failure(
    trial: Trial, error: BackwardFailed, call: Callable[[Case], object]
) -> Failure:
    if "invalid gradient" in str(error):
        sentence = "the gradient by the weight or bias is not summed over the other axes: "
        return Failure("backward", f"{sentence}{error}", "unreduced")
    given = attribute_refusal(trial, error.case, call, ()).given
    text = f"the backward pass raises when the layer is given {given}: {error}"
    return Failure("backward", text, "backward_raises")


def _malformed(inputs: Inputs, got: Results) -> Failure | None:
    y, x = got["y"], inputs.x
    if y.shape != x.shape:
        sentence = f"an input of shape {tuple(x.shape)} gives an output of shape "
        return Failure("shape", f"{sentence}{tuple(y.shape)}; expected the input's shape")
    if y.dtype != x.dtype:
        sentence = f"{name_of(x.dtype)} input gives {y.dtype} output"
        return make_failure("dtype", sentence, "output_dtype")
    return None


def _output_evidence(results: Sequence[Comparison], formula: Formula) -> list[Evidence]:
    """What each call says about the output."""
    found = []
    for r in results:
        e = r.evidence(formula, r.got["y"])
        found.append(e.within(r.budget("y", e.output)))
    return found


def _probes(trial: Trial) -> list[Evidence]:
    """Calls without bias at ever smaller inputs, which show where eps is and how large."""
    found = []
    for rms in _PROBES:
        inputs = make_inputs(trial.cases[0], Scale("probe", rms), trial.scope.dtype, seed=9)
        if inputs.bias is not None:
            inputs.bias.zero_()
        got = trial.observe(inputs, backward=False)["y"].double()
        wide = inputs.to(torch.float64)
        formula, dtype = trial.declared.at(inputs.case), trial.scope.dtype
        found.append(Evidence(formula, wide, got, probe=True, dtype=dtype))
    return found


def _read_clamp(trial: Trial) -> Formula:
    """A declared clamp may bound the variance, the root or the norm: whichever the layer does."""
    formula = trial.declared
    if formula.eps_placement != "clamp":
        return formula
    try:
        probes = _probes(trial)
    except Exception:  # a layer that cannot be called is reported by the checks
        return formula
    readings = (formula.replace(clamp_of=of) for of in ("variance", "root", "norm"))
    found = (f for f in readings if explains({"clamp_of": f.clamp_of}, probes))
    return next(found, formula)


def _centers_otherwise(formula: Formula) -> bool:
    """Then torch's error on shifted input says nothing about what may be lost there."""
    return formula.center_numerator is not None or formula.center_variance is not None


def _judge_outputs(
    trial: Trial, scales: Sequence[Sequence[Comparison]], shifted: Sequence[Comparison]
) -> tuple[Formula | None, list[Failure]]:
    """The formula that gives all outputs, None if there is none, and what is wrong with them."""
    declared = trial.declared
    by_scale = [_output_evidence(results, declared) for results in scales]
    evidence = [e for at_scale in by_scale for e in at_scale]
    actual, diagnosis, worst = declared, None, max(e.excess for e in evidence)
    if worst > 1:
        diagnosis = explain_forward(evidence + _probes(trial))
        actual = declared.replace(**(diagnosis.changes or {}))
    beyond = max(e.excess for e in _output_evidence(shifted, actual))
    # an error that grows a hundredfold with the mean is cancellation, and explains small
    # errors at mean 0 as well
    explained = diagnosis is None or diagnosis.changes is not None
    cancels = beyond > 1 and (explained or (worst < 1e3 and beyond > 10 * worst))
    cancels = cancels and not _centers_otherwise(actual)
    failures: list[Failure] = []
    if diagnosis is not None and diagnosis.mistake is None and not cancels:
        calls = zip(itertools.chain(*scales), evidence, strict=True)
        large = [c for c, e in calls if e.excess > max(1.0, worst / 100)]
        text = f"{diagnosis.sentence}. {describe_smallest(trial, large)}"
        diagnosis = dataclasses.replace(diagnosis, sentence=text)
    if diagnosis is not None and (explained or not cancels):
        for at_scale in by_scale:
            name, here = at_scale[0].inputs.scale.name, max(e.excess for e in at_scale)
            # what ordinary and small inputs show, those near eps need not show again
            if here > 1 and not (failures and name == _NEAR_EPS):
                wrong = sum(e.excess > 1 for e in at_scale)
                found = diagnosis.sentence, diagnosis.mistake
                failures.append(excess_failure(name, *found, here, wrong))
        if not explained:
            return None, failures
    if cancels:
        mistake, says = "one_pass", MISTAKES["one_pass"].message
        if trial.scope.dtype in HALF:
            says += "; or the mean is rounded to 16 bits before it is subtracted"
            if not trial.norm.centered:
                mistake, says = "half_precision_statistics", "squares look computed in 16 bits"
        failures.append(excess_failure(SHIFTED.name, says, mistake, beyond))
    return actual, failures
