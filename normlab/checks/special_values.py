"""Values that random inputs leave out: means over zeros, over one value, over tiny or large ones.

What a layer gives is compared mean by mean, for what is wrong with one row of zeros is nothing
beside the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from normlab.checks.diagnosis import ONE
from normlab.checks.formula import Formula
from normlab.checks.frozen import WORDS
from normlab.checks.inputs import Inputs, Results, make_inputs, plain_results, torch_baseline
from normlab.checks.report import Failure, Finding, Note, Ran, make_failure
from normlab.checks.tolerances import HALF
from normlab.checks.trial import BackwardFailed, Trial, name_of

_ULPS = 64  # roundings of a value, or of one of the terms that a gradient is summed of
_HALF_ULPS = 8  # the same of a value in 16 bits
_HALF = 0.1  # of the terms of a gradient that were each rounded to 16 bits
_PLAIN = 8  # times the error of the formula in the dtype of the input
WHAT = {"y": "the output", **{key: f"the gradient by {word}" for key, word in WORDS.items()}}

# what the cells of one mean become; squares of the tiny ones are 0 and those of the large ones are
# not infinite, in float32, in which statistics of 16-bit inputs are taken, too
_CELLS: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": torch.zeros_like,
    "one value": lambda cells: torch.full_like(cells, 3.0),
    "tiny values": lambda cells: cells * max(1e-25, float(torch.finfo(cells.dtype).tiny) / 100),
    "large values": lambda cells: cells * min(1e8, float(torch.finfo(cells.dtype).max) / 100),
}


def check_special_values(trial: Trial) -> Iterator[Finding]:
    """Outputs and gradients where all cells of one mean are special, in each dtype."""
    norm = trial.norm
    cells = "row" if norm.trailing else "group" if norm.grouped else "channel"
    for dtype in (torch.float32, *trial.scope.half):
        kinds = list(_CELLS.items())[: 2 if dtype != torch.float32 else None]
        for k, (kind, change) in enumerate(kinds):
            inputs = make_inputs(trial.cases[k % len(trial.cases)], dtype=dtype, seed=30 + k)
            view, dims = trial.actual.at(inputs.case).view(inputs.x)
            first = view[tuple(slice(None) if a in dims else 0 for a in range(view.dim()))]
            first.copy_(change(first.clone()))
            yield from compare_means(trial, inputs, "special values", f"a {cells} of {kind}")


def compare_means(trial: Trial, inputs: Inputs, check: str, place: str = "") -> Iterator[Finding]:
    """What is wrong with the results of one call, and for which cells: their `place`."""
    want, dtype = trial.expect(inputs, backward=trial.scope.backward), inputs.x.dtype
    if dtype in HALF and dtype != trial.scope.dtype:
        check = f"{name_of(dtype)}, {check}"
    try:
        got = trial.observe(inputs)
    except Exception as error:  # the layer under test may fail in any way
        given = place or f"{'an' if check[0] == 'e' else 'a'} {check}"
        text = f"raises when it is given {given}: {type(error).__name__}: {error}"
        noted = dtype != torch.float32 and not isinstance(error, BackwardFailed)  # it may refuse
        mistake = check.replace(" ", "_") + "_raises"
        yield Note(f"{check}: {text}") if noted else Failure(check, text, mistake)
        return
    if got["y"].dtype != dtype == torch.float64:
        yield Note(f"{check}: the output has dtype {got['y'].dtype}")
    yield Ran(check)
    if got["y"].shape != inputs.x.shape:
        yield Failure(check, f"the output has shape {(*got['y'].shape,)}")
        return
    formula, allowed = trial.actual.at(inputs.case), _budgets(trial, inputs, want)
    for key, right in want.items():
        if key in trial.layer.fixed or not right.numel():
            continue
        text, value = WHAT[key], got.get(key)
        if place:
            text = {"y": "the output of", "dx": "the gradient of"}.get(key, f"{text} beside")
            text = f"{text} {place}"
        if value is None or value.numel() != right.numel():
            state = "is missing" if value is None else "has another shape"
            yield Failure(check, f"{text} {state}")
            return
        value = value.reshape(right.shape).double()
        off = _largest(formula, key, value - right)
        wrong = ~(off <= allowed[key])
        if wrong.any():  # unless it is beyond what the formula reaches in this dtype
            plain = plain_results(trial.actual, inputs, backward=trial.scope.backward)[key].double()
            own = allowed[key] + _PLAIN * _largest(formula, key, plain - right)
            reached = _largest(formula, key, right) < torch.finfo(dtype).max / 4
            wrong &= reached & own.isfinite() & ~(off <= own)
        if wrong.any() and dtype in HALF and key != "y":  # torch keeps 1 / root in 16 bits
            like, eps, backward = trial.layer.like, trial.actual.eps, trial.scope.backward
            theirs = torch_baseline(like, inputs, backward=backward, eps=eps)[key]
            wrong &= _largest(formula, key, theirs.reshape(right.shape)).isfinite()
        if wrong.any():
            worst = _largest(formula, key, value)[wrong][0]
            yield _failure(trial, inputs, check, text, worst, float(off[wrong][0]))
            return


def _largest(formula: Formula, key: str, values: Tensor) -> Tensor:
    """The largest magnitude of each mean; of what is summed over means, that of all."""
    if key not in ("y", "dx"):
        return values.double().abs().amax().reshape(1)
    view, dims = formula.view(values)
    return view.double().abs().amax(dims, keepdim=True)


def _budgets(trial: Trial, inputs: Inputs, want: Results) -> dict[str, Tensor]:
    """The largest error that rounding leaves to each mean.

    A right layer rounds the mean to float32, so that cells of one value are not 0 when it is
    subtracted: the smaller eps is, the more that counts.
    """
    formula, dtype, wide = trial.actual.at(inputs.case), inputs.x.dtype, inputs.to(torch.float64)
    x, weight, bias = wide.given
    if not x.numel():
        return dict.fromkeys(want, torch.zeros(1))
    view, dims = formula.view(x)
    _, var, count = formula.statistics(x)
    rstd = 1 / formula.denominator(var, count)
    eps32 = torch.finfo(torch.float32).eps
    noise = 4 * eps32 * view.abs().amax(dims, keepdim=True) * rstd
    factor = torch.ones_like(x)
    if weight is not None:
        factor = factor * (weight + formula.weight_offset).view(formula.parameter_view(x))
    upstream = formula.view((factor * wide.dy).abs())[0].amax(dims, keepdim=True)
    scale = {
        "y": _largest(formula, "y", want["y"]) + (0.0 if bias is None else bias.abs().max()),
        "dx": upstream * rstd,
        "dweight": (wide.dy * formula.normalize(x)).abs().sum().reshape(1),
        "dbias": wide.dy.abs().sum().reshape(1),
    }
    noises = {
        "y": noise * factor.abs().max(),
        "dx": noise * scale["dx"],
        "dweight": (noise * count).sum().reshape(1) * wide.dy.abs().max(),
    }
    half = dtype in HALF
    own = {"y": _HALF_ULPS * torch.finfo(dtype).eps} if half else {}
    return {
        key: own.get(key, _HALF if half else _ULPS * eps32) * scale[key]
        + noises.get(key, 0.0)
        + torch.finfo(dtype).tiny
        for key in want
    }


def _failure(
    trial: Trial, inputs: Inputs, check: str, text: str, worst: Tensor, off: float
) -> Failure:
    formula, dtype = trial.actual, inputs.x.dtype
    mistake = "factor_of_0" if check == "factor of 0" else None
    if worst.isfinite():
        return make_failure(check, f"{text} is off by {off:.1e}", mistake)
    text += f" is {'NaN' if worst.isnan() else 'infinite'}"
    text += f" in {name_of(dtype)}" if dtype in HALF else ""
    if float(torch.tensor(formula.eps, dtype=dtype)) == 0.0 < formula.eps:
        text += f": eps {formula.eps:.3g} is 0 in {name_of(dtype)}"
        return make_failure(check, text, "eps_underflows")
    _, var, count = formula.at(inputs.case).statistics(inputs.x.double())
    if count == 1:
        return make_failure(check, f"{text}: {ONE}", "variance_of_one")
    if "gradient" in text and float(var.min()) < torch.finfo(torch.float32).tiny:
        spread = "var" if trial.norm.centered else trial.norm.spread.partition(" ")[0]
        text += f": take the root of ({spread} + eps), or mask before the root"
        return make_failure(check, text, "root_of_zero")
    return make_failure(check, text, mistake)
