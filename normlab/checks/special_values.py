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
from normlab.checks.inputs import Inputs, Results, make_inputs, results_of
from normlab.checks.report import Failure, Finding, Note, Ran, make_failure
from normlab.checks.trial import Trial, name_of

_ULPS = 64  # roundings of a value, or of one of the terms that a gradient is summed of
_HALF_ULPS = 8  # the same of a value in 16 bits
_HALF = 0.1  # of the terms of a gradient that were each rounded to 16 bits
_PLAIN = 8  # times the error of the formula in the dtype of the input

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
            _change_first(trial.actual.at(inputs.case), inputs.x, change)
            found = list(compare_means(trial, inputs, "special values", f"a {cells} of {kind}"))
            yield from found
            if any(not isinstance(f, Ran) for f in found):
                return


def _change_first(formula: Formula, x: Tensor, change: Callable[[Tensor], Tensor]) -> None:
    """Change the cells of the first mean, in place."""
    view, dims = formula.view(x)
    cells = view[tuple(slice(None) if axis in dims else 0 for axis in range(view.dim()))]
    cells.copy_(change(cells.clone()))


def compare_means(trial: Trial, inputs: Inputs, check: str, place: str) -> Iterator[Finding]:
    """What is wrong with the results of one call, and for which cells: their `place`."""
    half = inputs.x.dtype != torch.float32
    check = f"{name_of(inputs.x.dtype)}, {check}" if half else check
    want = trial.expect(inputs, backward=trial.scope.backward)
    try:
        got = trial.observe(inputs)
    except Exception as error:  # the layer under test may fail in any way
        text = f"for {place} it raises {type(error).__name__}: {error}"
        # not every dtype is everybody's
        yield Note(f"{check}: {text}") if half else Failure(check, text)
        return
    yield Ran(check)
    formula, allowed = trial.actual.at(inputs.case), _budgets(trial, inputs, want)
    for key, right in want.items():
        if key not in got or key in trial.layer.fixed:
            continue
        result = got[key].reshape(right.shape).double()
        off = _largest(formula, key, result - right)
        wrong = ~(off <= allowed[key])
        if wrong.any():  # unless it is beyond what the formula reaches in this dtype
            plain = _plain(trial.actual, inputs, backward=trial.scope.backward)[key].double()
            own = allowed[key] + _PLAIN * _largest(formula, key, plain - right)
            reached = _largest(formula, key, right) < torch.finfo(inputs.x.dtype).max / 4
            wrong &= reached & own.isfinite() & ~(off <= own)
        if wrong.any():
            value = _largest(formula, key, result)[wrong][0]
            yield _failure(trial, inputs, check, place, key, value, off[wrong][0])
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
    half = dtype != torch.float32
    own = {"y": _HALF_ULPS * torch.finfo(dtype).eps} if half else {}
    return {
        key: own.get(key, _HALF if half else _ULPS * eps32) * scale[key]
        + noises.get(key, 0.0)
        + torch.finfo(dtype).tiny
        for key in want
    }


def _plain(formula: Formula, inputs: Inputs, *, backward: bool) -> Results:
    """The formula with statistics in float32, and results in the dtype of the input."""
    x, *parameters = inputs.leaves()
    wide = (None if p is None else p.float() for p in parameters)
    y = formula.at(inputs.case)(x.float(), *wide).to(x.dtype)
    if backward:
        y.backward(inputs.dy)
    return results_of(y, x, *parameters)


_OF = {"dweight": "the gradient by the weight", "dbias": "the gradient by the bias"}


def _failure(
    trial: Trial, inputs: Inputs, check: str, place: str, key: str, value: Tensor, off: Tensor
) -> Failure:
    formula, dtype = trial.actual, inputs.x.dtype
    short = {"y": "the output of", "dx": "the gradient of"}
    text = f"{short[key]} {place}" if key in short else f"{_OF[key]}, where there is {place},"
    broken = {True: "NaN", False: "infinite"}[bool(value.isnan())]
    text += f" is off by {float(off):.1e}" if value.isfinite() else f" is {broken}"
    text += "" if dtype == torch.float32 else f" in {name_of(dtype)}"
    if value.isfinite():
        return Failure(check, text)
    if float(torch.tensor(formula.eps, dtype=dtype)) == 0.0 < formula.eps:
        text += f": eps {formula.eps:.3g} is 0 in {name_of(dtype)}"
        return make_failure(check, text, "eps_underflows")
    _, var, count = formula.at(inputs.case).statistics(inputs.x.double())
    if count == 1:
        return make_failure(check, f"{text}: {ONE}", "variance_of_one")
    if key != "y" and float(var.min()) < torch.finfo(torch.float32).tiny:
        spread = "sum" if trial.norm.spread == "sum of squares" else "mean"
        spread = "var" if trial.norm.centered else spread
        text += f": take the root of ({spread} + eps), or mask before the root"
        return make_failure(check, text, "root_of_zero")
    return Failure(check, text)
