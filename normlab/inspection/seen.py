"""What the rules are asked about."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from normlab.inspection.report import Norm
from normlab.inspection.state import State
from normlab.inspection.tracing import Example, ModuleCall, Trace


@dataclass(frozen=True)
class Seen:
    """A model that was run once.

    Attributes:
        model: may be run again and changed; the caller puts it back.
        example: its arguments.
        state: what it held before it was run.
        trace: of its run.
        under_autocast: calls of a run in bfloat16, by path; none where there was no such run.
        norms: modules among the norms that were found in it.
        functions: norms that are calls of a function.
        layers: path of a norm -> what was probed.
        unknown: paths of what looks like a norm and was not understood.
        modules: of the model, by path.
        optimizer: of the model, or None.
        given: what the caller passed: the model, or a DistributedDataParallel around it.
        recomputed: paths of batch norms that a backward pass calls again.
        partial: names of norms' parameters whose gradients are parts of one.
    """

    model: nn.Module
    example: Example
    state: State
    trace: Trace
    under_autocast: dict[str, ModuleCall]
    norms: list[Norm]
    functions: list[Norm]
    layers: dict[str, nn.Module]
    unknown: list[str]
    modules: dict[str, nn.Module]
    optimizer: torch.optim.Optimizer | None
    given: nn.Module
    recomputed: frozenset[str]
    partial: frozenset[str]
