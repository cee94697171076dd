"""16-bit input: statistics that do not overflow, the dtype of the output, the order of casts."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.checks.formula import Formula
from normlab.checks.inputs import (
    Inputs,
    Scale,
    formula_for,
    make_inputs,
    observe,
    oracle,
    torch_baseline,
    torch_formula,
)
from normlab.checks.mistakes import make_failure
from normlab.checks.refusals import charge_refusals
from normlab.checks.report import Failure, Report
from normlab.checks.tolerances import error_budget, max_error
from normlab.norms import Case
from normlab.probing.modules import AnySubject

__all__ = ["check_half_precision", "check_weight_cast"]

_UNIT = Scale("unit", 1.0, 0.0, 8.0)
# squares of 300 are infinite in float16, whose largest number is 65504
_LARGE = Scale("large", 300.0, 0.0, 8.0)


def _expected(formula: Formula, inputs: Inputs, weight_cast: str, *, rounded: bool) -> Tensor:
    """The output in float64; `rounded` where the layer rounds to 16 bits on the way."""
    x, dtype = inputs.x.double(), inputs.x.dtype

    def cast(value: Tensor) -> Tensor:
        return value.to(dtype).double() if rounded else value

    shaped = formula_for(formula, inputs.case)
    x_hat = shaped.normalize(x)
    weight = None if inputs.weight is None else inputs.weight.double()
    bias = None if inputs.bias is None else inputs.bias.double()
    if weight_cast == "before":
        return cast(shaped.affine(x, x_hat, weight, bias))
    x_hat = x_hat.to(dtype).double()
    if weight is not None:  # each operation rounds, that of the factor included
        factor = cast(weight + shaped.weight_offset)
        x_hat = cast(shaped.replace(weight_offset=0.0).affine(x, x_hat, factor, None))
    return cast(shaped.affine(x, x_hat, None, bias))


def _observe(subject: AnySubject, inputs: Inputs) -> tuple[Tensor, bool]:
    """The output, and whether the parameters have 16 bits, too."""
    try:
        return observe(subject, inputs, backward=False).y, True
    except Exception as error:  # parameters in float32 beside 16-bit input are common
        weight, bias = (None if p is None else p.float() for p in (inputs.weight, inputs.bias))
        try:
            x = inputs.x.clone()
            with torch.no_grad():
                y, _ = subject(inputs.case, x, weight, bias, half_parameters=False)
        except Exception:
            raise error from None
        return y, False


def check_half_precision(
    subject: AnySubject, formula: Formula, report: Report, weight_cast: str | None
) -> None:
    """16-bit input gives 16-bit output, computed from statistics that do not overflow."""
    for dtype, scales in ((torch.bfloat16, (_UNIT,)), (torch.float16, (_UNIT, _LARGE))):
        for scale in scales:
            name = f"{str(dtype).removeprefix('torch.')}, {scale.name} input"
            if not _check_dtype(subject, formula, dtype, scale, name, report, weight_cast):
                break


def _check_dtype(
    subject: AnySubject,
    formula: Formula,
    dtype: torch.dtype,
    scale: Scale,
    name: str,
    report: Report,
    weight_cast: str | None,
) -> bool:
    """Every case of one dtype at one scale; False where the layer takes none of them."""

    def takes(case: Case) -> bool:
        try:
            _observe(subject, make_inputs(case, scale, dtype, seed=0))
        except Exception:  # the layer under test may fail in any way; said where it is first seen
            return False
        return True

    refused: dict[Case, str] = {}
    found: list[tuple[Inputs, Tensor, bool]] = []
    for case in subject.cases:
        inputs = make_inputs(case, scale, dtype, seed=0)
        try:
            found.append((inputs, *_observe(subject, inputs)))
        except Exception as error:  # the layer under test may fail in any way
            text = f"{type(error).__name__} for an input of shape {case.shape}: {error}"
            refused[case] = text
    if not found and scale is _UNIT:  # 16 bits are not everybody's; that is no wrong norm
        text = f"every {dtype} input is refused: {next(iter(refused.values()))}"
        report.untested.append(text)
        return False
    report.checks.append(name)
    accepted = [inputs.case for inputs, *_ in found]
    if accepted:
        charge_refusals(subject, name, refused, accepted, takes, report)
    else:
        said = next(iter(refused.values()))
        text = f"raises when it is given an input of rms {scale.rms:g}: {said}"
        report.failures.append(Failure(name, text, "scale_raises"))
    for inputs, got, half_parameters in found:
        report.cases += 1
        failure = _judge(formula, inputs, got, half_parameters, scale, name, weight_cast)
        if failure is not None:
            if failure.mistake is None:
                report.notes.append(f"{name}: {failure.message}")
            else:
                report.failures.append(failure)
            break
    return True


def _judge(
    formula: Formula,
    inputs: Inputs,
    got: Tensor,
    half_parameters: bool,
    scale: Scale,
    name: str,
    weight_cast: str | None,
) -> Failure | None:
    dtype = inputs.x.dtype
    if got.dtype != dtype:
        if not half_parameters:
            return Failure(name, f"float32 parameters make the output {got.dtype}")
        sentence = f"the output has dtype {got.dtype}; expected that of the input, {dtype}"
        return make_failure(name, sentence, "output_dtype")
    theirs = torch_baseline(formula.like, inputs, dtype, backward=False).y
    right = oracle(torch_formula(formula.like), inputs, backward=False).y
    # either order of weight and cast is within what is allowed
    expected = _expected(formula, inputs, weight_cast or "before", rounded=False)
    # one rounding of the output, and one more for each of weight and bias in 16 bits
    budget = error_budget(expected, dtype, max_error(theirs, right), factor=scale.factor, ulps=4)
    difference = max_error(got, expected)
    if difference <= budget:
        return None
    sentence = (
        "the statistics look computed in half precision; square and sum in float32. "
        f"Error {difference:.1e}, allowed {budget:.1e}"
    )
    return make_failure(name, sentence, "half_precision_statistics")


def check_weight_cast(
    subject: AnySubject, formula: Formula, report: Report, weight_cast: str
) -> None:
    """The declared order of weight and cast, seen in the last bit of bfloat16 outputs."""
    case = max((c for c in subject.cases), key=lambda c: (c.weight, torch.Size(c.shape).numel()))
    agreed = {"before": 0.0, "after": 0.0}
    seeds = range(8)
    for seed in seeds:
        inputs = make_inputs(case, _UNIT, torch.bfloat16, seed)
        try:
            got = observe(subject, inputs, backward=False).y.double()
        except Exception as error:  # said by the checks of half precision already
            report.notes.append(f"weight cast: {type(error).__name__}: {error}")
            return
        report.cases += 1
        for order in agreed:
            expected = _expected(formula, inputs, order, rounded=True)
            agreed[order] += float((got == expected).double().mean()) / len(seeds)
    other = "after" if weight_cast == "before" else "before"
    if agreed[weight_cast] >= 0.9 or agreed[weight_cast] >= agreed[other]:
        report.checks.append("weight cast")
    elif agreed[other] >= 0.9:
        report.checks.append("weight cast")
        sentence = (
            f"the weight multiplies {other} the cast to the input's dtype, expected {weight_cast}: "
            f"declared is weight_cast={weight_cast!r}"
        )
        report.failures.append(make_failure("weight cast", sentence, "weight_cast"))
    else:
        report.notes.append("weight cast: the last bits fit neither order")
