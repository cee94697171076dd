"""What the rules are asked about: a model that was run once, and the norms in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from normlab import norms
from normlab.fingerprint import Fingerprint
from normlab.inspection.report import Finding, Norm
from normlab.inspection.tracing import Example, ModuleCall, Trace


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

    def finding(self, rule: str, message: str) -> Finding:
        """A fault of this norm."""
        return Finding(rule, (self.path,), message)


@dataclass
class ModelRun:
    """A model that was run once."""

    given: nn.Module  #: what the caller passed: the model, or a DistributedDataParallel around it
    model: nn.Module  #: may be run again and changed; the caller puts it back
    example: Example  #: its arguments
    optimizer: torch.optim.Optimizer | None  #: of the model
    fresh: frozenset[str]  #: paths of modules that had the running statistics of a new layer
    trace: Trace  #: of its run
    modules: dict[str, nn.Module]  #: of the model, by path
    norms: list[FoundNorm] = field(default_factory=list)  #: in the order of their first call
    functions: list[Norm] = field(default_factory=list)  #: norms that are calls of a function
    #: path of a module or a call -> why it looks like a norm and is none that is known
    unknown: dict[str, str] = field(default_factory=dict)
    of_weights: list[str] = field(default_factory=list)  #: paths of modules that normalize a weight
    #: calls of a run in bfloat16, by path; none where there was no such run
    under_autocast: dict[str, ModuleCall] = field(default_factory=dict)
    recomputed: frozenset[str] = frozenset()  #: batch norms that a backward pass calls again
    partial: frozenset[str] = frozenset()  #: names of parameters whose gradients are parts of one

    @property
    def reports(self) -> list[Norm]:
        """All norms, calls of a function behind modules."""
        return [*(norm.report for norm in self.norms), *self.functions]

    @property
    def known(self) -> list[str]:
        """Paths of what is a norm or looks like one."""
        return [*(norm.module for norm in self.reports), *self.unknown]

    def has_inside(self, name: str) -> bool:
        """Whether a norm, or what looks like one, lies inside of this module."""
        prefix = f"{name}." if name else ""
        return any(other.startswith(prefix) and other != name for other in self.known)

    def is_inside(self, name: str) -> bool:
        """Whether this is a norm, or lies inside of one."""
        return any(n == name or name.startswith(f"{n}.") or not n for n in self.known)


def read_state(model: nn.Module) -> tuple[list[Finding], frozenset[str]]:
    """Wrong values in parameters and buffers before the first run of a model, which may change it.

    Also the paths of the modules whose running statistics are those of a new layer.
    """
    findings: list[Finding] = []
    fresh = []
    for name, module in model.named_modules():
        tensors = {
            key: value
            for key, value in (*module._parameters.items(), *module._buffers.items())
            if isinstance(value, Tensor) and not value.is_meta
        }
        findings += _wrong_values(name, tensors)
        if _is_fresh(tensors):
            fresh.append(name)
    return findings, frozenset(fresh)


def _wrong_values(module: str, tensors: dict[str, Tensor]) -> Iterator[Finding]:
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            continue
        if not bool(torch.isfinite(tensor).all()):
            yield Finding(
                "not_finite",
                (module,),
                f"{name} has entries that are NaN or infinite. Load an earlier state and look for "
                "the step that spoiled it; running statistics do not recover from a NaN",
            )
        elif "running" in name and "var" in name and bool((tensor < 0).any()):
            yield Finding(
                "negative_variance",
                (module,),
                f"{name} has negative entries. Load an earlier state, or check how it was averaged",
            )


def _is_fresh(tensors: dict[str, Tensor]) -> bool:
    counters = [t for t in tensors.values() if not t.is_floating_point() and t.numel() == 1]
    means = [t for n, t in tensors.items() if "mean" in n and t.is_floating_point()]
    variances = [t for n, t in tensors.items() if "var" in n and t.is_floating_point()]
    initial = all(bool((t == 0).all()) for t in means)
    initial = initial and all(bool((t == 1).all()) for t in variances)
    return bool(means) and bool(variances) and initial and all(int(t) == 0 for t in counters)
