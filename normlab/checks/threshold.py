"""The learned lower bound of an output: its value, its gradient, and what it lets through."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.checks.inputs import ORDINARY, Inputs, make_inputs
from normlab.checks.report import Failure, Report, make_failure
from normlab.checks.tolerances import max_error
from normlab.probing.modules import ForeignNorm

_CHECK = "threshold"
_ALLOWED = 1e-4  # the values were checked elsewhere; a form such as relu(y - t) + t rounds


def check_threshold(subject: ForeignNorm, report: Report) -> None:
    """The output is max(y, threshold), y being that of a threshold that binds nowhere."""
    if not subject.has_threshold:
        return
    inputs = make_inputs(subject.cases[0], ORDINARY, torch.float32, seed=80)
    generator = torch.Generator().manual_seed(80)
    threshold = torch.randn(inputs.case.parameter_shape, generator=generator) / 2
    report.checks.append(_CHECK)
    report.cases += 1
    try:
        failure = _compare_values(subject, inputs, threshold)
        if failure is None and subject.scope.backward:
            report.checks.append(f"gradient, {_CHECK}")
            failure = _compare_gradients(subject, inputs, threshold)
    except Exception as error:  # the layer under test may fail in any way
        text = f"raises when it is given a threshold: {type(error).__name__}: {error}"
        failure = Failure(_CHECK, text, "threshold_raises")
    report.failures += [failure] if failure else []


def _spread(values: Tensor, x: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (x.dim() - 2))


def _compare_values(subject: ForeignNorm, inputs: Inputs, threshold: Tensor) -> Failure | None:
    case, x, weight, bias = inputs.case, inputs.x, inputs.weight, inputs.bias
    with torch.no_grad():
        free, _ = subject(case, x.clone(), weight, bias)
        got, _ = subject(case, x.clone(), weight, bias, threshold=threshold)
    limit = _spread(threshold, x)
    moved = limit if weight is None else limit * _spread(weight, x)
    moved = moved if bias is None else moved + _spread(bias, x)
    readings = {
        "": torch.maximum(free, limit),
        "threshold_ignored": free,
        "threshold_above": torch.minimum(free, limit),
        "threshold_before_affine": torch.maximum(free, moved),
    }
    size = _ALLOWED * float(free.abs().max())
    found = (name for name, y in readings.items() if max_error(got, y) <= size)
    mistake = next(found, "threshold")
    said = {
        "threshold_ignored": "the threshold is not applied",
        "threshold_above": "the threshold bounds the output from above, not from below",
        "threshold_before_affine": "the threshold bounds the normalized input, before weight and "
        "bias, and not the output",
        "threshold": "the output is not max(y, threshold)",
    }
    return make_failure(_CHECK, said[mistake], mistake) if mistake else None


def _compare_gradients(subject: ForeignNorm, inputs: Inputs, threshold: Tensor) -> Failure | None:
    case, dy = inputs.case, inputs.dy
    x, weight, bias = inputs.leaves(torch.float32)
    free, _ = subject(case, x, weight, bias)
    cut = free.detach() < _spread(threshold, x)
    expected = torch.autograd.grad(free, x, dy.masked_fill(cut, 0.0))[0]
    dthreshold = dy.masked_fill(~cut, 0.0).sum((0, *range(2, dy.dim())))
    own = inputs.x.clone().requires_grad_()
    y, leaves = subject(case, own, weight, bias, threshold=threshold.clone().requires_grad_())
    learned = leaves[2]
    assert learned is not None
    if not learned.requires_grad:
        return None  # a bound that is not learned
    got = torch.autograd.grad(y, [own, learned], dy, allow_unused=True)
    wanted = {"the threshold": (got[1], dthreshold), "the input": (got[0], expected)}
    for name, (found, right) in wanted.items():
        if found is None or not max_error(found, right) <= _ALLOWED * float(right.abs().max()):
            what = "is cut from the graph" if found is None else "is wrong"
            text = f"the gradient by {name} {what}: what is cut off goes to the threshold alone"
            return make_failure(f"gradient, {_CHECK}", text, "threshold_gradient")
    return None
