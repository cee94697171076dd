"""16-bit input: statistics that do not overflow, the dtype of the output, the order of casts."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.checks.comparison import Comparison
from normlab.checks.formula import Formula
from normlab.checks.inputs import Inputs, Outcome, Scale, formula_for, make_inputs, observe
from normlab.checks.probing.modules import ForeignNorm
from normlab.checks.refusals import call_each, charge_refusals
from normlab.checks.report import Failure, Report, make_failure
from normlab.checks.tolerances import max_error
from normlab.norms import Case

_UNIT = Scale("unit input", 1.0, 0.0, 8.0)
# squares of 300 are infinite in float16, whose largest number is 65504
_LARGE = Scale("large input", 300.0, 0.0, 8.0)


def _expected(formula: Formula, inputs: Inputs, weight_cast: str, *, rounded: bool) -> Tensor:
    """The output in float64; `rounded` where the layer rounds to 16 bits on the way."""
    dtype = inputs.x.dtype
    x, weight, bias = inputs.to(torch.float64)

    def cast(value: Tensor) -> Tensor:
        return value.to(dtype).double() if rounded else value

    shaped = formula_for(formula, inputs.case)
    x_hat = shaped.normalize(x)
    if weight_cast == "before":
        return cast(shaped.affine(x, x_hat, weight, bias))
    x_hat = x_hat.to(dtype).double()
    if weight is not None:  # each operation rounds, that of the factor included
        factor = cast(weight + shaped.weight_offset)
        x_hat = cast(shaped.replace(weight_offset=0.0).affine(x, x_hat, factor, None))
    return cast(shaped.affine(x, x_hat, None, bias))


def _observe(subject: ForeignNorm, inputs: Inputs) -> tuple[Tensor, bool]:
    """The output, and whether the parameters have 16 bits, too."""
    try:
        return observe(subject, inputs, backward=False).y, True
    except Exception as error:  # parameters in float32 beside 16-bit input are common
        _, *parameters = inputs.to(torch.float32)
        try:
            with torch.no_grad():
                x = inputs.x.clone()
                y, _ = subject(inputs.case, x, *parameters, half_parameters=False)
        except Exception:
            raise error from None
        return y, False


def check_half_precision(
    subject: ForeignNorm, formula: Formula, report: Report, weight_cast: str | None
) -> None:
    """16-bit input gives 16-bit output, computed from statistics that do not overflow."""
    for dtype, scales in ((torch.bfloat16, (_UNIT,)), (torch.float16, (_UNIT, _LARGE))):
        if dtype not in subject.scope.half:
            report.untested.append(f"{str(dtype).removeprefix('torch.')} input, as asked for")
            continue
        cases = subject.cases
        for scale in scales:
            name = f"{str(dtype).removeprefix('torch.')}, {scale.name}"

            def call(
                case: Case, scale: Scale = scale, dtype: torch.dtype = dtype
            ) -> tuple[Inputs, Tensor, bool]:
                inputs = make_inputs(case, scale, dtype, seed=0)
                return inputs, *_observe(subject, inputs)

            taken, refused = call_each(cases, call)
            text = next(iter(refused.values()), "")
            if not taken and scale is _UNIT:  # 16 bits are not everybody's; that is no wrong norm
                report.untested.append(f"every {dtype} input is refused: {text}")
                break
            report.checks.append(name)
            if refused and scale is _UNIT:
                charge_refusals(subject, name, refused, list(taken), call, report)
            elif refused:
                text = f"raises when it is given {scale.name}: {text}"
                report.failures.append(Failure(name, text, "scale_raises"))
            cases = list(taken)
            for found in taken.values():
                report.cases += 1
                if _differs(formula, *found, scale, name, report, weight_cast):
                    break


def _differs(
    formula: Formula,
    inputs: Inputs,
    got: Tensor,
    half_parameters: bool,
    scale: Scale,
    name: str,
    report: Report,
    weight_cast: str | None,
) -> bool:
    """Whether one output is not what it should be, which is reported."""
    dtype = inputs.x.dtype
    if got.dtype != dtype:
        if half_parameters:
            sentence = f"the output has dtype {got.dtype}; expected that of the input, {dtype}"
            report.failures.append(make_failure(name, sentence, "output_dtype"))
        else:
            report.notes.append(f"{name}: float32 parameters make the output {got.dtype}")
        return True
    compared = Comparison.of(scale, inputs, Outcome(got), formula.like, backward=False)
    # either order of weight and cast is within what is allowed
    expected = _expected(formula, inputs, weight_cast or "before", rounded=False)
    # one rounding of the output, and one more for each of weight and bias in 16 bits
    budget = compared.budget("y", expected, ulps=4)
    difference = max_error(got, expected)
    if difference <= budget:
        return False
    sentence = (
        "the statistics look computed in half precision; square and sum in float32. "
        f"Error {difference:.1e}, allowed {budget:.1e}"
    )
    report.failures.append(make_failure(name, sentence, "half_precision_statistics"))
    return True


def check_weight_cast(
    subject: ForeignNorm, formula: Formula, report: Report, weight_cast: str
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
