"""What the rules are asked about: a model's state before it was run, and what the run showed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normlab.inspection.report import Finding, Norm
from normlab.inspection.tracing import Example, ModuleCall, Trace


@dataclass(frozen=True)
class State:
    """What parameters and buffers hold before the first run of a model, which may change it."""

    findings: list[Finding]  #: values that are not finite, and negative variances
    fresh: frozenset[str]  #: paths of modules whose running statistics are those of a new layer


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


def read_state(model: nn.Module) -> State:
    """Look at all parameters and buffers of a model."""
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
    return State(findings, frozenset(fresh))


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
