"""Values that random inputs leave out: means over zeros, over one value, over tiny or large ones.

What a layer gives there is compared mean by mean, for what is wrong with one row of zeros is
nothing beside the other rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from normlab.checks.formula import Formula
from normlab.checks.inputs import Inputs, Results, make_inputs, results_of
from normlab.checks.report import Failure, Finding, Note, Ran, make_failure
from normlab.checks.trial import Trial, name_of
from normlab.norms import NORMS

_NAME = "special values"
_ULPS = 64  # roundings of a value, or of one of the terms that a gradient is summed of
_HALF = 0.1  # of the terms of a gradient that were each rounded to 16 bits
_PLAIN = 8  # times the error of the formula in the dtype of the input
_WHAT = {"dweight": "the gradient by the weight", "dbias": "the gradient by the bias"}

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
    for dtype in (torch.float32, *trial.scope.half):
        for k, (kind, change) in enumerate(_CELLS.items()):
            inputs = make_inputs(trial.cases[k % len(trial.cases)], dtype=dtype, seed=30 + k)
            _change_first(trial.actual.at(inputs.case), inputs.x, change)
            found = list(_try(trial, inputs, kind))
            yield from found
            if any(not isinstance(f, Ran) for f in found):
                return


def _change_first(formula: Formula, x: Tensor, change: Callable[[Tensor], Tensor]) -> None:
    """Change the cells of the first mean, in place."""
    view, dims = formula.view(x)
    cells = view[tuple(slice(None) if axis in dims else 0 for axis in range(view.dim()))]
    cells.copy_(change(cells.clone()))


def _try(trial: Trial, inputs: Inputs, kind: str) -> Iterator[Finding]:
    want = trial.expect(inputs, backward=trial.scope.backward)
    allowed = _budgets(trial, inputs, want)
    try:
        got = trial.observe(inputs)
    except Exception as error:  # the layer under test may fail in any way
        place = f"{_place(trial, kind)} in {name_of(inputs.x.dtype)}"
        text = f"{place}: {type(error).__name__}: {error}"
        half = inputs.x.dtype != torch.float32  # its parameters may have to stay in float32
        yield Note(f"{_NAME}: {text}") if half else Failure(_NAME, f"raises for {text}")
        return
    yield Ran(_NAME)
    formula = trial.actual.at(inputs.case)
    for key in want:
        if key not in got or key in trial.layer.fixed:
            continue
        error = _rows(formula, key, got[key].reshape(want[key].shape).double() - want[key])
        largest = _rows(formula, key, got[key].reshape(want[key].shape))
        wrong = error > allowed[key]
        wrong |= ~largest.isfinite() & allowed[key].isfinite()
        if wrong.any():
            value = largest[wrong][0], error[wrong][0]
            yield _failure(trial, inputs, kind, key, *value)
            return


def _rows(formula: Formula, key: str, values: Tensor) -> Tensor:
    """The largest magnitude of each mean; of what is summed over means, that of all."""
    if key not in ("y", "dx"):
        return values.double().abs().amax().reshape(1)
    view, dims = formula.view(values)
    return view.double().abs().amax(dims, keepdim=True)


def _budgets(trial: Trial, inputs: Inputs, want: Results) -> dict[str, Tensor]:
    """The largest error allowed to each mean; infinite where float32 does not reach the result.

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
    added = 0.0 if bias is None else float(bias.abs().max())
    upstream = formula.view((factor * wide.dy).abs())[0].amax(dims, keepdim=True)
    scale = {
        "y": _rows(formula, "y", want["y"]) + added,
        "dx": upstream * rstd,
        "dweight": (wide.dy * formula.normalize(x)).abs().sum().reshape(1),
        "dbias": wide.dy.abs().sum().reshape(1),
    }
    noises = {"y": noise * float(factor.abs().max()), "dx": noise * scale["dx"]}
    noises["dweight"] = (noise * count).sum().reshape(1) * float(wide.dy.abs().max())
    plain = _plain(trial.actual, inputs, backward=trial.scope.backward)
    found = {}
    for key, right in want.items():
        own = _ULPS * eps32 if dtype == torch.float32 else 8 * torch.finfo(dtype).eps
        if dtype != torch.float32 and key != "y":
            own = _HALF
        error = _rows(formula, key, plain[key].double() - right).nan_to_num(nan=math.inf)
        allowed = own * scale[key] + noises.get(key, 0.0) + _PLAIN * error
        allowed = allowed + torch.finfo(dtype).tiny
        reach = _rows(formula, key, right) < torch.finfo(dtype).max / 4
        found[key] = torch.where(reach, allowed.nan_to_num(nan=math.inf), math.inf)
    return found


def _plain(formula: Formula, inputs: Inputs, *, backward: bool) -> Results:
    """The formula with statistics in float32, and results in the dtype of the input."""
    leaves = inputs.leaves(inputs.x.dtype)
    y = formula.at(inputs.case)(*(None if t is None else t.float() for t in leaves))
    y = y.to(inputs.x.dtype)
    if backward:
        y.backward(inputs.dy)
    return results_of(y, *leaves)


def _place(trial: Trial, kind: str) -> str:
    norm = trial.norm
    name = "row" if norm.trailing else "group" if norm.grouped else "channel"
    return f"a {name} of {kind}"


def _failure(
    trial: Trial, inputs: Inputs, kind: str, key: str, largest: Tensor, error: Tensor
) -> Failure:
    formula, dtype = trial.actual, inputs.x.dtype
    check = _NAME if dtype == torch.float32 else f"{name_of(dtype)}, {_NAME}"
    place = _place(trial, kind)
    what = {"y": f"the output of {place}", "dx": f"the gradient of {place}"}.get(
        key, f"{_WHAT.get(key)}, where there is {place},"
    )
    value = f"off by {float(error):.1e}"
    if not math.isfinite(float(largest)):
        value = "NaN" if math.isnan(float(largest)) else "infinite"
    text = f"{what} is {value}" + ("" if dtype == torch.float32 else f" in {name_of(dtype)}")
    if value.startswith("off"):
        return Failure(check, text)
    if float(torch.tensor(formula.eps, dtype=dtype)) == 0.0 < formula.eps:
        text += f": eps {formula.eps:.3g} is 0 in {name_of(dtype)}"
        return make_failure(check, text, "eps_underflows")
    if key != "y" and kind != "large values":
        spread = {"sum of squares": "sum"}.get(NORMS[formula.like].spread, "mean")
        spread = "var" if NORMS[formula.like].centered else spread
        text += f": take the root of ({spread} + eps), or mask before the root"
        return make_failure(check, text, "root_of_zero")
    return Failure(check, text)
