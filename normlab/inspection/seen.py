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
    """A model that was run once."""

    model: nn.Module  #: may be run again and changed; the caller puts it back
    example: Example  #: its arguments
    state: State  #: what it held before it was run
    trace: Trace  #: of its run
    #: calls of a run in bfloat16, by path; none where there was no such run
    under_autocast: dict[str, ModuleCall]
    norms: list[Norm]  #: modules among the norms that were found in it
    functions: list[Norm]  #: norms that are calls of a function
    layers: dict[str, nn.Module]  #: path of a norm -> what was probed
    modules: dict[str, nn.Module]  #: of the model, by path
    optimizer: torch.optim.Optimizer | None  #: of the model, or None
    given: nn.Module  #: what the caller passed: the model, or a DistributedDataParallel around it
    recomputed: frozenset[str]  #: paths of batch norms that a backward pass calls again
    partial: frozenset[str]  #: names of norms' parameters whose gradients are parts of one
