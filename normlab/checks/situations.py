"""Situations that ordinary inputs leave out: large, signed, double, frozen, twice, compiled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from normlab.checks.activations import check_activations, check_widths
from normlab.checks.frozen import calls_of, check_frozen, is_far
from normlab.checks.inputs import Inputs, make_inputs
from normlab.checks.report import Failure, Finding, Ran, make_failure
from normlab.checks.reuse import fill_anew
from normlab.checks.shapes import check_shapes
from normlab.checks.special_values import WHAT, check_special_values, compare_means
from normlab.checks.trial import Trial, name_of

_FUSED = 8  # times the error of the layer as it is
_LARGE = 5_000  # rows or positions: more than a block of a fused kernel has, or a grid that is cut
_ENTRIES = 300_000
_CALLS = 12
# which call is differentiated, and when
_BACKWARDS = (
    (0, "after a second call"),
    (1, "where it is added to that of another call"),
    (0, "at a second backward pass"),
)


def check_situations(trial: Trial, failures: Sequence[Failure]) -> Iterator[Finding]:
    """Output and gradients where only the size, the sign or the history of a call is unusual.

    Args:
        trial: the layer.
        failures: what is wrong with values or gradients would show here again.
    """
    if any("float16" not in f.check and f.check != "saved state" for f in failures):
        return
    wrong = {word for f in failures for word in f.check.replace(",", "").split()}
    half = tuple(dtype for dtype in trial.scope.half if name_of(dtype) not in wrong)
    trial = replace(trial, scope=replace(trial.scope, half=half))
    plain = (found for s in _situations(trial) for found in compare_means(trial, *s))
    shapes = check_widths, check_shapes
    others = (check_special_values, check_activations, *shapes, _check_use, check_frozen)
    for found in itertools.chain(plain, *(check(trial) for check in others)):
        yield found
        if isinstance(found, Failure):
            return


def check_sizes(trial: Trial) -> Iterator[Finding]:
    """Many rows, and means over other numbers of cells, in the dtype that is checked."""
    for inputs, name in _many_rows(trial):
        yield from compare_means(trial, inputs, name)
    yield from check_widths(trial)


def _many_rows(trial: Trial) -> Iterator[tuple[Inputs, str]]:
    case = trial.cases[0]
    rows = min(_LARGE, _ENTRIES // max(1, torch.Size(case.shape[1:]).numel()))
    if not case.is_one_row and rows > case.shape[0]:
        larger = replace(case, shape=(rows, *case.shape[1:]))
        yield make_inputs(larger, dtype=trial.scope.dtype, seed=21), "large input"


def _situations(trial: Trial) -> Iterator[tuple[Inputs, str]]:
    """Inputs, and the name of their check."""
    case, scope, norm = trial.cases[0], trial.scope, trial.norm
    yield from _many_rows(trial)
    if scope.double:
        yield make_inputs(case, dtype=torch.float64, seed=22), "float64 input"
    inputs = make_inputs(case, seed=23)
    if inputs.weight is not None:
        signed = torch.linspace(-2.0, 1.7, inputs.weight.numel()).view(inputs.weight.shape)
        one_off = signed.clone()
        one_off.view(-1)[signed.numel() // 2 :][:1] = -trial.actual.weight_offset
        for name, weight in (("weight of either sign", signed), ("factor of 0", one_off)):
            yield replace(inputs, weight=weight), name
    if case.is_one_row:
        return
    sizes = [0] if norm.trailing and scope.empty else []
    sizes += [1] if scope.batch_of_one and "batch of one" not in norm.may_fail else []
    for size in sizes:
        few = replace(case, shape=(size, *case.shape[1:]))
        if size and not norm.trailing and trial.actual.cells(few) == 1:
            continue  # torch's own take none
        yield make_inputs(few, seed=25), "batch of one" if size else "empty input"


def _check_use(trial: Trial) -> Iterator[Finding]:
    """One layer called twice before its backward passes, often, and with an input that is fixed."""
    name = "used again"
    yield Ran(name)
    first, second = (make_inputs(trial.cases[0], seed=s) for s in (26, 27))
    second = replace(second, weight=first.weight, bias=first.bias)
    try:
        text = _use(trial, first, second)
    except Exception as error:  # the layer under test may fail in any way
        text = f"where it is used again, it raises {type(error).__name__}: {error}"
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
                return f"{WHAT[key]} is wrong {when}"
        if not torch.equal(xs[k].detach(), given[k].x):
            return "the backward pass writes into the input"
    text = fill_anew(lambda x: call(x)[0], first.x, second.x, right[1]["y"])
    if text:
        return text
    with torch.no_grad():
        for _ in range(_CALLS):
            call(second.x.clone())
        y, _ = call(first.x.clone())
    return f"after {_CALLS} more calls the output is another" if is_far(y, right[0]["y"]) else ""


def check_compiled(trial: Trial) -> Iterator[Finding]:
    """Values and gradients of a layer that torch.compile was given, for one input of two ranks.

    All other checks ran without compilation, since each shape, dtype and mode is compiled anew.
    """
    by_rank = {len(case.shape): case for case in trial.cases}
    for case in list(by_rank.values())[:2]:
        with torch.compiler.set_stance("default"):
            findings = list(compare_means(trial, make_inputs(case, seed=0), "compiled"))
        for found in findings:
            if isinstance(found, Failure):
                text = f"once compiled, unlike the layer as it is: {found.message}"
                yield Failure("compiled", text, "compiled_differs")
                return
            yield found
