"""Shapes that the other checks leave out: square ones, of five axes, and the caller's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from normlab.checks.inputs import make_inputs
from normlab.checks.refusals import takes
from normlab.checks.report import Finding, Note
from normlab.checks.special_values import compare_means
from normlab.checks.trial import Trial
from normlab.norms import Case

_ENTRIES = 300_000
_MOST = 2**20  # entries of the shape that the caller gives
_AXES = 5


def check_shapes(trial: Trial) -> Iterator[Finding]:
    """As many rows as features, five axes where the layer takes them, and the shape as given."""
    case = trial.cases[0]
    rows = case.shape[-1 if trial.norm.trailing else 1]
    square = replace(case, shape=(rows, *case.shape[1:]))
    if not case.is_one_row and torch.Size(square.shape).numel() <= _ENTRIES:
        place = f"an input of shape {square.shape}"
        yield from compare_means(trial, make_inputs(square, seed=80), "square input", place)
    five = _with_five_axes(trial, case)
    if five is not None:
        inputs = make_inputs(five, seed=81)
        if takes(inputs, trial.observe):
            yield from compare_means(trial, inputs, "five axes", f"an input of shape {five.shape}")
    yield from _check_as_given(trial, case)


def _with_five_axes(trial: Trial, case: Case) -> Case | None:
    """None where the layer has one rank, where it has this one, and where the caller chose."""
    ranks = {len(c.shape) for c in trial.cases}
    if len(ranks) == 1 or _AXES in ranks or trial.asked is not None or case.axis is not None:
        return None
    if not trial.norm.trailing:
        return replace(case, shape=(2, case.shape[1], 3, 4, 2))
    own = case.shape[len(case.shape) - case.normalized_ndim :]
    shape = (*(2, 3, 4, 5)[: _AXES - len(own)], *own)
    return replace(case, shape=shape) if len(shape) == _AXES else None


def _check_as_given(trial: Trial, case: Case) -> Iterator[Finding]:
    """Values of an input of the caller's shape, which every other check has shortened."""
    shape = trial.asked
    if shape is None or any(c.shape == shape for c in trial.cases):
        return
    if torch.Size(shape).numel() > _MOST:
        yield Note(f"an input of shape {shape} as it is, since it has more than {_MOST} entries")
        return
    values = replace(trial, scope=replace(trial.scope, backward=False))
    inputs = make_inputs(replace(case, shape=shape), seed=82)
    yield from compare_means(values, inputs, "shape as given", f"an input of shape {shape}")
