"""What the rules look at: a model that was run once, and the norms in it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from normlab import norms
from normlab.checks.fingerprint import Fingerprint
from normlab.checks.inspection.foreign import read_entries
from normlab.checks.inspection.report import Norm
from normlab.checks.inspection.state import State
from normlab.checks.inspection.tracing import Example, ModuleCall, Trace, in_mode, run_once
from normlab.checks.probing.arguments import tensors_in
from normlab.checks.probing.state import preserve_buffers


@dataclass(frozen=True)
class FoundNorm:
    """A module of a model that is a norm."""

    path: str  #: in the model; "" is the model itself
    module: nn.Module
    call: ModuleCall  #: its first
    layer: nn.Module  #: what was probed: the module, or its call as a module of one tensor
    fingerprint: Fingerprint

    @property
    def record(self) -> norms.Norm:
        """What is known of its family."""
        return norms.NORMS[str(self.fingerprint.family)]

    @property
    def report(self) -> Norm:
        """What the examination says of it."""
        return Norm(self.path, type(self.module).__name__, self.call.shape, self.fingerprint)

    @property
    def uses_batch(self) -> bool:
        """Whether it takes statistics over the batch in the mode that it is in."""
        running = self.fingerprint.running_statistics
        return self.record.over_batch and (self.module.training or not running)

    @property
    def uses_running(self) -> bool:
        """Whether it normalizes with running statistics in the mode that it is in."""
        return bool(self.fingerprint.running_statistics) and not self.module.training

    @property
    def records_batch(self) -> bool:
        """Whether its running statistics follow the inputs in the mode that it is in."""
        return bool(self.fingerprint.running_statistics) and self.module.training


@dataclass
class ModelRun:
    """A model that was run once."""

    given: nn.Module  #: what the caller passed: the model, or a DistributedDataParallel around it
    model: nn.Module  #: may be run again and changed; the caller puts it back
    example: Example  #: its arguments
    optimizer: torch.optim.Optimizer | None  #: of the model
    state: State  #: what it held before it was run
    trace: Trace  #: of its run
    modules: dict[str, nn.Module]  #: of the model, by path
    norms: list[FoundNorm] = field(default_factory=list)  #: in the order of their first call
    functions: list[Norm] = field(default_factory=list)  #: norms that are calls of a function
    #: path of a module or a call -> why it looks like a norm and is none that is known
    unknown: dict[str, str] = field(default_factory=dict)
    of_weights: list[str] = field(default_factory=list)  #: paths of modules that normalize a weight
    #: paths of modules that are named like norms and take no statistics
    no_statistics: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)  #: paths of batch norms that only evaluate
    #: path of what is a norm up to scale -> its layer, shape of its input, axes it reduces
    misscaled: dict[str, tuple[nn.Module, tuple[int, ...], tuple[int, ...]]] = field(
        default_factory=dict
    )
    notes: list[str] = field(default_factory=list)  #: what could not be examined, and why

    def outputs(self) -> list[Tensor]:
        """All floating tensors that the model gives; none where it raises. Buffers are put back."""
        with (
            preserve_buffers([self.model]),
            in_mode(self.model, as_it_is=self.trace.as_it_is),
            contextlib.suppress(Exception),
        ):
            output = run_once(self.model, self.example)
            found = (t for _, t in tensors_in(output) if t.is_floating_point())
            return [read_entries(t).double() for t in found]
        return []

    @property
    def reports(self) -> list[Norm]:
        """All norms, calls of a function behind modules."""
        return [*(norm.report for norm in self.norms), *self.functions]

    @property
    def known(self) -> list[str]:
        """Paths of what is a norm or looks like one."""
        named = [norm.path for norm in self.norms] + [norm.module for norm in self.functions]
        return [*named, *self.unknown, *self.frozen]

    def has_inside(self, name: str) -> bool:
        """Whether a norm, or what looks like one, lies inside of this module."""
        prefix = f"{name}." if name else ""
        return any(other.startswith(prefix) and other != name for other in self.known)

    def is_inside(self, name: str) -> bool:
        """Whether this is a norm, or lies inside of one."""
        return any(n == name or name.startswith(f"{n}.") or not n for n in self.known)


Message = Callable[[FoundNorm, ModelRun], str | None]
Found = Iterator[tuple[tuple[str, ...], str]]  # paths of modules, and what is wrong with them


def of_each_norm(message: Message) -> Callable[[ModelRun], Found]:
    """Make a rule of a function that returns the message for one norm, or None."""

    @functools.wraps(message)
    def find(run: ModelRun) -> Found:
        for norm in run.norms:
            text = message(norm, run)
            if text is not None:
                yield (norm.path,), text

    return find
