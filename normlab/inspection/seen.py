"""What the rules are asked about."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from normlab.inspection.report import Norm
from normlab.inspection.tracing import Example, ModuleCall, Trace


@dataclass(frozen=True)
class Seen:
    """A model that was run once.

    Attributes:
        model: may be run again and changed; the caller puts it back.
        example: its arguments.
        trace: of its run.
        under_autocast: calls of a run in bfloat16, by path; none where there was no such run.
        norms: that were found in it.
        modules: of the model, by path.
        optimizer: of the model, or None.
    """

    model: nn.Module
    example: Example
    trace: Trace
    under_autocast: dict[str, ModuleCall]
    norms: list[Norm]
    modules: dict[str, nn.Module]
    optimizer: torch.optim.Optimizer | None
