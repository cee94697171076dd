"""Inputs as real networks have them, in each dtype, and widths besides those of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from normlab.checks.inputs import Inputs, make_inputs
from normlab.checks.refusals import takes
from normlab.checks.report import Finding, Note
from normlab.checks.special_values import compare_means
from normlab.checks.trial import Trial
from normlab.norms import Case

_LARGE = 50_000  # entries
_WIDTHS = (1, 3, 17, 100, 20_001)  # small, no power of two, more than a block of a kernel


# what becomes of a normal input, and of the number of each cell's feature
_KINDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "with a few features hundreds of times larger": lambda x, k: x * (1 + 299 * (k % 4 == 1)),
    "with zeros in half of its cells": lambda x, _: x.relu(),
    "of one sign": lambda x, _: -x.abs() - 0.1,
    "with heavy tails": lambda x, _: x**5,
    "of integers": lambda x, _: (3 * x).round(),
    "of denormal numbers": lambda x, _: x * torch.finfo(x.dtype).tiny / 8,
}


def check_activations(trial: Trial) -> Iterator[Finding]:
    """Real activations; 16-bit ones beside float32 parameters, where the layer takes them so."""
    sizes = {case: torch.Size(case.shape).numel() for case in trial.cases}
    case = max(sizes, key=lambda c: (sizes[c] < _LARGE, sizes[c]))
    axis, ones = -1 if trial.norm.trailing else 1, [1] * (len(case.shape) - 1)
    features = torch.arange(case.shape[axis]).view(-1, *ones).transpose(0, axis)
    for dtype in (torch.float32, *trial.scope.half):
        wide = dtype == torch.float32 or takes(
            _mixed(make_inputs(case, seed=60), dtype), trial.observe
        )
        for k, (kind, change) in enumerate(_KINDS.items()):
            inputs = make_inputs(case, seed=60 + k)
            inputs = _mixed(inputs, dtype) if wide else inputs.to(dtype)
            inputs = replace(inputs, x=change(inputs.x, features))
            yield from compare_means(trial, inputs, "activations", f"an input {kind}")


def _mixed(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Beside parameters in float32, which have digits that 16 bits have not."""
    return replace(inputs, x=inputs.x.to(dtype), dy=inputs.dy.to(dtype))


def check_widths(trial: Trial) -> Iterator[Finding]:
    """Means over other numbers of cells, where the parameters allow it."""
    case, name, tried = trial.cases[0 if trial.norm.trailing else -1], "other widths", False
    for width in _WIDTHS if case.axis is None and case.normalized_ndim == 1 else ():
        inputs = make_inputs(_at_width(trial, case, width), dtype=trial.scope.dtype, seed=70)
        if not takes(inputs, trial.observe):
            continue
        tried = True
        yield from compare_means(trial, inputs, name, f"an input of shape {inputs.case.shape}")
    if not tried:
        width = case.shape[-1 if case.axis is None else case.axis[-1]]
        yield Note(f"{name} than {width}, since it takes no other")


def _at_width(trial: Trial, case: Case, width: int) -> Case:
    """Two samples, or two rows, of this many features, or positions in a row."""
    if trial.norm.trailing:
        shape = (*(min(size, 2) for size in case.shape[:-1]), width)
        parameters = trial.norm.parameter_shape(shape)
        return replace(case, shape=shape, parameter_shape=parameters, normalized_ndim=1)
    if len(case.shape) == 2:
        return replace(case, shape=(width, case.shape[1]))
    return replace(case, shape=(2, case.shape[1], *[1] * (len(case.shape) - 3), width))
