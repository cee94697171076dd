"""Frozen batch norm: weight, bias and statistics are buffers, which nothing moves in training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.inputs import BATCH, make_inputs
from normlab.checks.probing import ForeignModule, ForeignNorm
from normlab.checks.report import Finding, Ran, make_failure
from normlab.checks.trial import Trial

_NAME = "running statistics"


def check_buffers(layer: Any) -> Iterator[Finding]:
    """Nothing in a frozen batch norm is trained.

    Raises:
        ValueError: it is no module, so that it holds nothing.
    """
    if not isinstance(layer, nn.Module):
        raise ValueError("layer: a frozen batch norm is a module with buffers; got a function")
    yield Ran("parameters", 0)
    trained = [name for name, p in layer.named_parameters() if p.requires_grad]
    if trained:
        text = f"{', '.join(trained)}: a parameter, which an optimizer moves"
        yield make_failure("parameters", text, "not_frozen")


def fix_statistics(layer: ForeignNorm) -> tuple[Tensor, Tensor]:
    """Fill a module's running mean and variance with numbers that 16 bits have, and give them.

    Raises:
        ValueError: it holds none.
    """
    if not isinstance(layer, ForeignModule) or not (layer.mean_name and layer.var_name):
        raise ValueError(
            "layer: could not be tested: no running mean and variance among its buffers"
        )
    channels = torch.arange(layer.cases[0].parameter_shape[0], dtype=torch.float64)
    fixed = (channels % 5 - 2) / 4, 2 ** (channels % 3 - 6)
    for name, values in zip((layer.mean_name, layer.var_name), fixed, strict=True):
        tensor = layer.tensor(layer.module, name)
        tensor.copy_(values.reshape(tensor.shape))
    return fixed


def check_fixed(trial: Trial) -> Iterator[Finding]:
    """A call in training leaves the running statistics as they are."""
    fixed = trial.declared.fixed
    assert fixed is not None
    yield Ran(_NAME)
    t, running = make_inputs(trial.small_case, BATCH, seed=40), tuple(v.float() for v in fixed)
    trial.layer(t.case, *t.given, running=(running[0], running[1]))
    for what, now, before in zip(("mean", "variance"), running, fixed, strict=True):
        if not torch.equal(now.double(), before):
            yield make_failure(_NAME, f"training moves the running {what}", "frozen_moves")
            return
