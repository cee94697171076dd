"""16-bit input: statistics that do not overflow, the dtype of the output, the order of casts."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from normlab.checks.diagnosis import find_other_eps
from normlab.checks.inputs import (
    SMALL,
    Comparison,
    Evidence,
    Inputs,
    Scale,
    make_inputs,
    torch_baseline,
)
from normlab.checks.probing import ForeignModule
from normlab.checks.refusals import report_refusals
from normlab.checks.report import Failure, Finding, Note, Ran, make_failure
from normlab.checks.tolerances import error_budget, max_error
from normlab.checks.trial import Trial, call_each, name_of
from normlab.norms import Case

_UNIT = Scale("unit input", 1.0)
# squares of 300 are infinite in float16, whose largest number is 65504
_LARGE = Scale("large input", 300.0)
# twenty deviations from 0, where 16 bits hold the mean to a few hundredths of a deviation
_SHIFTED = Scale("shifted input", 1.0, mean=20.0)
_ROUNDINGS = 4  # of each of the terms of a cell
_EVALUATION_ULPS = 8


def _expected(trial: Trial, inputs: Inputs, weight_cast: str, *, rounded: bool) -> Tensor:
    """The output in float64; `rounded` where the layer rounds to 16 bits on the way."""
    dtype = inputs.x.dtype
    x, weight, bias = inputs.to(torch.float64).given

    def cast(value: Tensor) -> Tensor:
        return value.to(dtype).double() if rounded else value

    formula = trial.actual.at(inputs.case)
    x_hat = formula.normalize(x)
    if weight_cast == "before":
        return cast(formula.affine(x, x_hat, weight, bias))
    x_hat = x_hat.to(dtype).double()
    if weight is not None:  # each operation rounds, that of the factor included
        factor = cast(weight + formula.weight_offset)
        x_hat = cast(formula.replace(weight_offset=0.0).affine(x, x_hat, factor, None))
    return cast(formula.affine(x, x_hat, None, bias))


def _observe(trial: Trial, inputs: Inputs) -> tuple[Tensor, bool]:
    """The output, and whether the parameters have 16 bits, too."""
    try:
        return trial.observe(inputs, backward=False)["y"], True
    except Exception as error:  # parameters in float32 beside 16-bit input are common
        mixed = replace(inputs.to(torch.float32), x=inputs.x)
        try:
            return trial.observe(mixed, backward=False)["y"], False
        except Exception:
            raise error from None


def check_half_precision(trial: Trial) -> Generator[Finding, None, Trial]:
    """16-bit input gives 16-bit output, computed from statistics that do not overflow.

    Returns:
        the trial with those of its 16-bit dtypes that the layer takes.
    """
    taken: list[torch.dtype] = []
    for dtype in (torch.bfloat16, torch.float16):
        if dtype not in trial.scope.half:
            yield Note(f"{name_of(dtype)} input, as asked for", untested=True)
        elif (yield from _check_dtype(trial, dtype)):
            taken.append(dtype)
            yield from _check_shifted(trial, dtype)
    return replace(trial, scope=replace(trial.scope, half=tuple(taken)))


def _check_dtype(trial: Trial, dtype: torch.dtype) -> Generator[Finding, None, bool]:
    """Whether the layer takes input of this dtype."""
    cases, right = trial.cases, True
    for scale in (_UNIT, SMALL, _LARGE) if dtype == torch.float16 else (_UNIT, SMALL):
        name = f"{name_of(dtype)}, {scale.name}"
        if scale is SMALL and not right:
            continue  # it would show again

        def call(case: Case, scale: Scale = scale) -> tuple[Inputs, Tensor, bool]:
            inputs = _make_inputs(case, scale, dtype)
            return inputs, *_observe(trial, inputs)

        # one call shows eps
        taken, refused = call_each(cases[:1] if scale is SMALL else cases, call)
        text = next(iter(refused.values()), "")
        if not taken and scale is _UNIT:  # 16 bits are not everybody's; that is no wrong norm
            yield Note(f"every {dtype} input is refused: {text}", untested=True)
            return False
        yield Ran(name, 0)
        if refused and scale is _UNIT:
            yield from report_refusals(trial, name, refused, list(taken), call)
        elif refused:
            text = f"raises when it is given {scale.name}: {text}"
            yield Failure(name, text, "scale_raises")
        cases = cases if scale is SMALL else tuple(taken)
        for found in taken.values():
            yield Ran(name)
            wrong = _judge(trial, name, *found)
            if wrong is not None:
                right = False
                yield wrong
                break
    return True


def _judge(
    trial: Trial, name: str, inputs: Inputs, got: Tensor, half_parameters: bool
) -> Failure | Note | None:
    """What is wrong with one output."""
    dtype = inputs.x.dtype
    if got.dtype != dtype:
        if not half_parameters:
            return Note(f"{name}: float32 parameters make the output {got.dtype}")
        sentence = f"the output has dtype {got.dtype}; expected that of the input, {dtype}"
        return make_failure(name, sentence, "output_dtype")
    compared = Comparison.of(inputs, {"y": got}, trial.layer.like, backward=False)
    # either order of weight and cast is within what is allowed
    expected = _expected(trial, inputs, trial.weight_cast or "before", rounded=False)
    # one rounding of the output, and one more for each of weight and bias in 16 bits
    budget = compared.budget("y", expected)
    difference = max_error(got, expected)
    if difference <= budget:
        return None
    if inputs.scale is SMALL and difference <= budget + _by_rounded_eps(trial, inputs, expected):
        return None  # where it matters, special values say it
    eps = _eps_in(trial, inputs.case, dtype)
    if eps is not None:
        there, here = (f"{value:.1e}" if value else "0" for value in (eps, trial.actual.eps))
        sentence = f"eps is {there} in {name_of(dtype)}, {here} in float32"
        return make_failure(name, sentence, "eps_of_dtype")
    sentence = (
        "the statistics look computed in half precision; square and sum in float32. "
        f"Error {difference:.1e}, allowed {budget:.1e}"
    )
    return make_failure(name, sentence, "half_precision_statistics")


def _by_rounded_eps(trial: Trial, inputs: Inputs, expected: Tensor) -> float:
    """How much an eps that is kept in the dtype of the input changes, which may be 0 there."""
    eps = float(torch.tensor(trial.actual.eps, dtype=inputs.x.dtype))
    held = replace(trial, actual=trial.actual.replace(eps=eps))
    return max_error(_expected(held, inputs, "before", rounded=False), expected)


def _make_inputs(case: Case, scale: Scale, dtype: torch.dtype) -> Inputs:
    """Random inputs; small ones without a bias, beside which eps would not be seen."""
    inputs = make_inputs(case, scale, dtype, seed=0)
    if scale is SMALL and inputs.bias is not None:
        inputs.bias.zero_()
    return inputs


def _eps_in(trial: Trial, case: Case, dtype: torch.dtype) -> float | None:
    """The eps that a small input shows in this dtype, where it is another than in float32."""
    inputs = _make_inputs(case, SMALL, dtype)
    try:
        got, _ = _observe(trial, inputs)
    except Exception:  # said by the checks of that scale
        return None
    wide = inputs.to(torch.float64)
    return find_other_eps(Evidence(trial.actual.at(case), wide, got.double(), probe=True))


def _check_shifted(trial: Trial, dtype: torch.dtype) -> Iterator[Finding]:
    """The mean that is subtracted has more digits than the input.

    Each cell is judged by its own terms, for an error of the mean shows where these are small. Not
    so of channel norms: torch's own batch norm keeps a mean of 16 bits, on the CPU.
    """
    norm, formula = trial.norm, trial.actual
    if not (norm.trailing and norm.centered and formula.center_numerator is None):
        return
    name = f"{name_of(dtype)}, {_SHIFTED.name}"
    inputs = make_inputs(trial.cases[0], _SHIFTED, dtype, seed=2)
    try:
        got, _ = _observe(trial, inputs)
    except Exception as error:  # the layer under test may fail in any way
        text = f"raises when it is given {_SHIFTED.name}: {type(error).__name__}: {error}"
        yield Failure(name, text, "scale_raises")
        return
    yield Ran(name)
    x, weight, bias = inputs.to(torch.float64).given
    shaped = formula.at(inputs.case)
    factor = None if weight is None else (weight + formula.weight_offset).abs()
    terms = shaped.replace(weight_offset=0.0).affine(
        x, shaped.normalize(x).abs(), factor, None if bias is None else bias.abs()
    )
    expected, unit = shaped(x, weight, bias), torch.finfo(dtype).eps * terms
    unit += _SHIFTED.mean * torch.finfo(torch.float32).eps  # the mean in float32
    theirs = torch_baseline(trial.layer.like, inputs, backward=False, eps=formula.eps)["y"]
    own, torchs = (float(((y.double() - expected).abs() / unit).max()) for y in (got, theirs))
    allowed = max(float(_ROUNDINGS), _SHIFTED.factor * torchs)
    if not own <= allowed and _eps_in(trial, trial.cases[0], dtype) is None:  # said before
        sentence = (
            "the mean looks rounded to 16 bits before it is subtracted; keep it in float32 "
            f"(error {own / allowed:.1e} times the allowed)"
        )
        yield make_failure(name, sentence, "half_precision_statistics")


def check_half_evaluation(trial: Trial, failures: Sequence[Failure]) -> Iterator[Finding]:
    """Evaluation of 16-bit input gives the values of float32.

    Args:
        trial: the layer.
        failures: what is wrong with evaluation, or with 16 bits in training, would show again.
    """
    layer, case = trial.layer, trial.cases[0]
    if not (layer.has_training and (layer.has_running or isinstance(layer, ForeignModule))):
        return
    if any("evaluation" in f.check or "float16" in f.check for f in failures):
        return
    running = None
    if layer.has_running:  # numbers that 16 bits have
        channels = torch.arange(case.parameter_shape[0])
        running = (channels % 5 - 2) / 4, 2.0 ** (channels % 3 - 1)
    for dtype in trial.scope.half:
        name = f"{name_of(dtype)}, evaluation"
        inputs = make_inputs(case, _UNIT, dtype, seed=1)
        try:
            got = _evaluate(trial, inputs, running)
        except Exception as error:  # the layer under test may fail in any way
            yield Note(f"{name}: {type(error).__name__}: {error}")
            continue
        yield Ran(name)
        x, *parameters = inputs.to(torch.float64).given
        known = () if running is None else (running[0].double(), running[1].double())
        expected = [
            (f.evaluate if known else f)(x, *known, *parameters)
            for f in (trial.actual.at(case), trial.declared.at(case))
        ]
        allowed = error_budget(expected[0], dtype, 0.0, ulps=_EVALUATION_ULPS)
        same = got.shape == inputs.x.shape
        wrong = min(max_error(got, right) if same else torch.inf for right in expected)
        if not wrong <= allowed:
            text = f"the output in evaluation is another than in float32: it is off by {wrong:.1e}"
            yield Failure(name, text, "eval_differs")


def _evaluate(trial: Trial, inputs: Inputs, running: tuple[Tensor, Tensor] | None) -> Tensor:
    """The output in evaluation, beside parameters of 16 bits or, where it takes none, of 32."""

    def call(t: Inputs, half_parameters: bool) -> Tensor:
        mean, var = (None, None) if running is None else (r.to(t.dy.dtype) for r in running)
        return trial.layer(
            t.case,
            inputs.x.clone(),
            t.weight,
            t.bias,
            training=False,
            running=None if mean is None or var is None else (mean, var),
            half_parameters=half_parameters,
        )[0]

    try:
        return call(inputs, True)
    except Exception as error:
        try:
            return call(inputs.to(torch.float32), False)
        except Exception:
            raise error from None


def check_weight_cast(trial: Trial, declared: str) -> Iterator[Finding]:
    """The declared order of weight and cast, seen in the last bit of bfloat16 outputs."""
    case = max(trial.cases, key=lambda c: (c.weight, torch.Size(c.shape).numel()))
    agreed = {"before": 0.0, "after": 0.0}
    seeds, name = range(8), "weight cast"
    cases = 0
    for seed in seeds:
        inputs = make_inputs(case, _UNIT, torch.bfloat16, seed=seed)
        try:
            got = trial.observe(inputs, backward=False)["y"].double()
        except Exception as error:  # said by the checks of half precision already
            yield Note(f"{name}: {type(error).__name__}: {error}")
            return
        cases += 1
        for order in agreed:
            expected = _expected(trial, inputs, order, rounded=True)
            agreed[order] += float((got == expected).double().mean()) / len(seeds)
    other = "after" if declared == "before" else "before"
    right = agreed[declared] >= 0.9 or agreed[declared] >= agreed[other]
    if not right and agreed[other] < 0.9:
        yield Note(f"{name}: the last bits fit neither order")
        return
    yield Ran(name, cases)
    if not right:
        sentence = (
            f"the weight multiplies {other} the cast to the input's dtype, expected {declared}: "
            f"declared is weight_cast={declared!r}"
        )
        yield make_failure(name, sentence, "weight_cast")
