"""A small input for an output that no mistake explains."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from normlab.checks.inputs import Comparison, Inputs, make_inputs, oracle
from normlab.checks.tolerances import max_error
from normlab.checks.trial import Trial

_SHOWN = 24  # values
_GROSS = 0.01  # relative; what is smaller has to be a quarter of the error that was seen


def _results(trial: Trial, inputs: Inputs) -> tuple[Tensor, Tensor, float]:
    """What came, what was expected, and their largest difference, relative."""
    got = trial.observe(inputs, backward=False)["y"].double()
    want = oracle(trial.declared, inputs, backward=False)["y"]
    return got, want, max_error(got, want) / float(want.abs().max())


def _is_wrong(trial: Trial, inputs: Inputs, limit: float) -> bool:
    try:
        return trial.declared.cells(inputs.case) > 1 and _results(trial, inputs)[2] > limit
    except Exception:  # the layer under test may fail in any way
        return False


def describe_smallest(trial: Trial, wrong: Sequence[Comparison]) -> str:
    """Shorten axes of a wrong input, make entries 1 or 0, and say what it gives."""
    inputs = min((c.inputs for c in wrong), key=lambda i: i.x.numel())
    limit = min(_GROSS, _results(trial, inputs)[2] / 4)
    for axis in (a for a in range(inputs.x.dim()) if a != 1 or not trial.norm.grouped):
        sizes, case = range(1, inputs.x.shape[axis]), inputs.case
        cases = (trial.layer.resized(case, axis, size) for size in sizes)
        several = (make_inputs(c, inputs.scale, inputs.x.dtype, seed=0) for c in cases)
        inputs = next((s for s in several if _is_wrong(trial, s, limit)), inputs)
    weight, bias = (None if p is None else torch.zeros_like(p) for p in inputs.given[1:])
    weight = None if weight is None else weight + 1 - trial.declared.weight_offset
    plain = replace(inputs, weight=weight, bias=bias, x=inputs.x.round())
    inputs = plain if _is_wrong(trial, plain, limit) else inputs
    for k, value in itertools.product(range(min(inputs.x.numel(), _SHOWN)), (1.0, 0.0)):
        x = inputs.x.clone()
        x.view(-1)[k] = value
        simpler = replace(inputs, x=x)
        inputs = simpler if _is_wrong(trial, simpler, limit) else inputs
    got, want, _ = _results(trial, inputs)
    worst = (got - want).abs().nan_to_num(torch.inf).flatten().argmax().view(1)
    shown, where = torch.arange(got.numel()), ""
    if got.numel() > _SHOWN:
        shown, where = worst, f", at its entry {int(worst)}"
    values = (", ".join(f"{v:.4g}" for v in t.flatten()[shown]) for t in (inputs.x, want, got))
    text = "x {}; expected {}; got {}".format(*values)
    return f"Smallest input found: shape {(*got.shape,)}{where}: {text}"
