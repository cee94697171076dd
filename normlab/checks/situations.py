"""Situations that ordinary inputs leave out: large, signed, double, frozen, twice, compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from normlab.checks.activations import check_activations, check_widths
from normlab.checks.frozen import calls_of, check_frozen, is_far
from normlab.checks.inputs import ORDINARY, Comparison, Inputs, Results, make_inputs
from normlab.checks.probing import ForeignFunction, ForeignModule, ForeignNorm
from normlab.checks.report import Failure, Finding, Note, Ran, make_failure
from normlab.checks.special_values import check_special_values
from normlab.checks.tolerances import GROSS, max_error
from normlab.checks.trial import BackwardFailed, Trial, name_of
from normlab.norms import Case

_FUSED = 8  # times the error of the layer as it is
_HALF = 0.1  # of a gradient whose terms were each rounded to 16 bits
_LARGE = 1100  # rows or positions: more than a block of a fused kernel has
_ENTRIES = 300_000
_CALLS = 12
# which call is differentiated, and when
_BACKWARDS = (
    (0, "after a second call"),
    (1, "where it is added to that of another call"),
    (0, "at a second backward pass"),
)
_WHAT = {
    "y": "the output",
    "dx": "the gradient by the input",
    "dweight": "the gradient by the weight",
    "dbias": "the gradient by the bias",
}


def check_situations(trial: Trial, failures: Sequence[Failure]) -> Iterator[Finding]:
    """Output and gradients where only the size, the sign or the history of a call is unusual.

    Args:
        trial: the layer.
        failures: what is wrong with values or gradients would show here again.
    """
    if any("float16" not in f.check and f.check != "saved state" for f in failures):
        return
    failed = False
    checks = (_check_each, check_special_values, check_activations, check_widths)
    for check in (*checks, _check_use, check_frozen):
        for found in () if failed else check(trial):
            failed = failed or isinstance(found, Failure)
            yield found


def _check_each(trial: Trial) -> Iterator[Finding]:
    for name, inputs, allowed in _situations(trial):
        yield from _try_situation(trial, name, inputs, allowed)


def _try_situation(trial: Trial, name: str, inputs: Inputs, allowed: float) -> Iterator[Finding]:
    try:
        got = trial.observe(inputs)
        text = differs(trial, inputs, got, allowed)
    except Exception as error:  # the layer under test may fail in any way
        backward = isinstance(error, BackwardFailed)
        words = f"its backward pass raises {error}" if backward else _named(error)
        text = f"for an input of shape {inputs.case.shape} {words}"
        if inputs.x.dtype != torch.float32 and not backward:
            yield Note(f"{name}: {text}")  # not every dtype is everybody's
            return
    else:
        if got["y"].dtype != inputs.x.dtype == torch.float64:
            yield Note(f"{name}: the output has dtype {got['y'].dtype}")
    yield Ran(name)
    if text:
        yield make_failure(name, text, "factor_of_0" if name == "factor of 0" else None)


def _named(error: Exception) -> str:
    return f"it raises {type(error).__name__}: {error}"


def _situations(trial: Trial) -> Iterator[tuple[str, Inputs, float]]:
    """Inputs, the name of their check, and how far the results may be off."""
    case, scope, norm = trial.cases[0], trial.scope, trial.norm
    for larger in _larger(trial):
        yield "large input", make_inputs(larger, seed=21), GROSS
    if scope.double:
        yield "float64 input", make_inputs(case, dtype=torch.float64, seed=22), GROSS
    inputs = make_inputs(case, seed=23)
    if inputs.weight is not None:
        signed = torch.linspace(-2.0, 1.7, inputs.weight.numel()).view(inputs.weight.shape)
        one_off = signed.clone()
        one_off.view(-1)[signed.numel() // 2 :][:1] = -trial.actual.weight_offset
        for name, weight in (("weight of either sign", signed), ("factor of 0", one_off)):
            yield name, replace(inputs, weight=weight), GROSS
    if not scope.backward or case.is_one_row:
        return
    for dtype in scope.half:
        yield f"gradient, {name_of(dtype)}", make_inputs(case, dtype=dtype, seed=24), _HALF
    sizes = [0] if norm.trailing and scope.empty else []
    sizes += [1] if scope.batch_of_one and "batch of one" not in norm.may_fail else []
    for size in sizes:
        few = replace(case, shape=(size, *case.shape[1:]))
        if size and not norm.trailing and trial.actual.cells(few) == 1:
            continue  # torch's own take none
        yield "batch of one" if size else "empty input", make_inputs(few, seed=25), GROSS


def _larger(trial: Trial) -> Iterator[Case]:
    """Many rows; many positions, too, and for a function many features, where it has them."""
    case, norm = trial.cases[0], trial.norm
    rows = min(_LARGE, _ENTRIES // max(1, torch.Size(case.shape[1:]).numel()))
    if not case.is_one_row and rows > case.shape[0]:
        yield replace(case, shape=(rows, *case.shape[1:]))
    if norm.trailing and isinstance(trial.layer, ForeignFunction):
        shape = (2, 4 * _LARGE)
        parameters = norm.parameter_shape(shape)
        yield replace(case, shape=shape, parameter_shape=parameters, normalized_ndim=1)


def differs(trial: Trial, inputs: Inputs, got: Results, allowed: float) -> str:
    """Which result of a call is grossly wrong; empty if none is."""
    want = trial.expect(inputs, backward=trial.scope.backward)
    for key, right in want.items():
        what, value = _WHAT[key], got.get(key)
        if key in trial.layer.fixed:
            continue
        if value is None or value.numel() != right.numel():
            return f"{what} is missing" if value is None else f"{what} has another shape"
        error = max_error(value.reshape(right.shape), right)
        largest = float(right.abs().max()) if right.numel() else 0.0
        if not error <= allowed * max(1.0, largest):
            return f"{what} is off by {error:.1e}"
    return ""


def _check_use(trial: Trial) -> Iterator[Finding]:
    """One layer called twice before its backward passes, often, and with an input that is fixed."""
    name = "used again"
    yield Ran(name)
    first, second = (make_inputs(trial.cases[0], seed=s) for s in (26, 27))
    second = replace(second, weight=first.weight, bias=first.bias)
    try:
        text = _use(trial, first, second)
    except Exception as error:  # the layer under test may fail in any way
        text = f"where it is used again, {_named(error)}"
    if text:
        yield make_failure(name, text, "used_again")


def _use(trial: Trial, first: Inputs, second: Inputs) -> str:
    """What is wrong with a second use; empty if nothing is."""
    call, given = calls_of(trial, first), (first, second)
    xs = [inputs.x.clone().requires_grad_() for inputs in given]
    ys = [call(xs[0])[0]]
    kept = ys[0].detach().clone()
    y, leaves = call(xs[1])
    ys.append(y)
    if not torch.equal(kept, ys[0].detach()):
        return "a second call writes into the output of the first"
    right = [trial.expect(inputs) for inputs in given]
    if is_far(ys[1], right[1]["y"]):
        return "the output is wrong at a second call"
    backward = trial.scope.backward
    roles = [
        (key, leaf)
        for key, leaf in zip(("dweight", "dbias"), leaves, strict=False)
        if backward and leaf is not None and key in right[0]
    ]
    total = {key: torch.zeros(()) for key, _ in roles}
    for k, when in _BACKWARDS if backward and ys[0].requires_grad else ():
        xs[k].grad = None
        ys[k].backward(given[k].dy.clone(), retain_graph=True)
        total = {key: value + right[k][key] for key, value in total.items()}
        for key, leaf, want in (
            ("dx", xs[k], right[k]["dx"]),
            *((key, leaf, total[key]) for key, leaf in roles),
        ):
            if is_far(leaf.grad, want):
                return f"{_WHAT[key]} is wrong {when}"
        if not torch.equal(xs[k].detach(), given[k].x):
            return "the backward pass writes into the input"
    with torch.no_grad():
        for _ in range(_CALLS):
            call(second.x.clone())
        y, _ = call(first.x.clone())
    return f"after {_CALLS} more calls the output is another" if is_far(y, right[0]["y"]) else ""


def is_compiled(layer: ForeignNorm) -> bool:
    """Whether it is what torch.compile gives, of a module or a function."""
    if isinstance(layer, ForeignModule):
        return hasattr(layer.module, "_orig_mod")
    return hasattr(layer.function, "_torchdynamo_orig_callable")


def check_compiled(trial: Trial) -> Iterator[Finding]:
    """Values and gradients of a layer that torch.compile was given, for one input of two ranks.

    All other checks ran without compilation, since each shape, dtype and mode is compiled anew.
    """
    name = "compiled"
    by_rank = {len(case.shape): case for case in trial.cases}
    for case in list(by_rank.values())[:2]:
        inputs = make_inputs(case, ORDINARY, seed=0)
        yield Ran(name)
        try:
            with torch.compiler.set_stance("default"):
                got = trial.observe(inputs)
        except Exception as error:  # a compiler may fail in any way
            text = f"raises once compiled: {type(error).__name__}: {error}"
            yield Failure(name, text, "compiled_raises")
            return
        comparison = Comparison.of(inputs, got, trial.layer.like)
        for key, want in trial.expect(inputs).items():
            if key not in got:
                continue
            wrong = max_error(got[key].reshape(want.shape), want)
            # a fused kernel may sum in another order than the layer as it is
            if not wrong <= _FUSED * comparison.budget(key, want):
                text = f"the compiled layer gives another {key} than the layer as it is"
                yield make_failure(name, text, "compiled_differs")
                return
