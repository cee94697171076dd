"""Walk a model, identify and check its norms, and apply the rules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from normlab.checks import check_layer
from normlab.fingerprint import Fingerprint, identify
from normlab.inspection.biases import check_biases
from normlab.inspection.padding import check_padding
from normlab.inspection.report import Examination, Finding, Norm
from normlab.inspection.rules import (
    check_buffers,
    check_counts,
    check_eps,
    check_frozen,
    check_half_precision,
    check_optimizer,
    check_wrong_axes,
)
from normlab.inspection.seen import Seen
from normlab.inspection.tracing import Example, ModuleCall, Trace, trace_model
from normlab.probing.state import preserve_state


def doctor(
    model: nn.Module, example_input: Any, *, optimizer: torch.optim.Optimizer | None = None
) -> Examination:
    """Look through a model for what usually goes wrong around norms.

    The model is run on the example to see which inputs its norms receive. Every module that
    keeps the shape of its input, and is no other layer of torch, is identified by probing
    (:func:`normlab.identify`) and compared with the formula of its family
    (:func:`normlab.checks.check_layer`). Model, modes, random streams and gradients are left as
    they were.

    The rules: `batch_of_one`, `one_element`, `frozen_but_updating`, `not_finite`,
    `negative_variance`, `stale_statistics`, `two_eps`, `wrong_axes`, `cancelled_bias`,
    `padding_in_statistics`, `decayed_norm`, `half_statistics`, `does_not_conform`.

    Args:
        model: in the mode in which it is used: what is wrong in training may be right in
            evaluation.
        example_input: a tensor, a tuple of arguments, or a dict of named ones. Padding is seen
            by a mask among them, by the `padding_idx` of an embedding, or by zeros at the end of
            some samples.
        optimizer: of the model, to look for weight decay on the parameters of norms.

    Raises:
        TypeError: `model` is no module.
        ValueError: the model raises on the example in training and in evaluation mode.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
        >>> [(f.rule, f.module) for f in doctor(net, torch.randn(8, 4)).findings]
        [('cancelled_bias', '0')]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}; expected a module")
    example, out = Example.of(example_input), Examination()
    with preserve_state([model]):
        trace = trace_model(model, example)
        out.norms = _find_norms(trace, out)
        modules, half = dict(model.named_modules()), _under_autocast(model, example, out)
        seen = Seen(model, example, trace, half, out.norms, modules, optimizer)
        for rule in _RULES:
            out.findings += rule(seen)
        _conform(out, modules)
    return out


_RULES = (
    check_counts,
    check_frozen,
    check_buffers,
    check_eps,
    check_wrong_axes,
    check_padding,
    check_biases,
    check_optimizer,
    check_half_precision,
)


def _under_autocast(model: nn.Module, example: Example, out: Examination) -> dict[str, ModuleCall]:
    other = (torch.float16, torch.bfloat16, torch.float64)
    if any(t.dtype in other for t in example.tensors().values()):
        return {}
    try:
        with preserve_state([model]):
            return trace_model(model, example, half=True).calls
    except ValueError as error:
        out.notes.append(f"not run under autocast: {error}")
        return {}


def _find_norms(trace: Trace, out: Examination) -> list[Norm]:
    norms: list[Norm] = []
    for call in trace.calls.values():
        if not _may_be_norm(call, [norm.module for norm in norms]):
            continue
        found = _identify_finite(call, out)
        if found is not None and found.family not in (None, "identity"):
            norms.append(Norm(call.name, type(call.module).__name__, call.shape, found))
    return norms


def _may_be_norm(call: ModuleCall, known: list[str]) -> bool:
    module = call.module
    if call.name == "" or call.returned is None or call.returned[2] != call.shape:
        return False
    if any(name.startswith(call.name + ".") for name in known):
        return False
    if type(module).__module__.startswith("torch.nn."):
        return type(module).__module__ in _TORCH_NORMS
    # weights of a norm have as many entries as an input has features; blocks have matrices
    return all(p.numel() <= max(1, _entries(call.shape)) for p in module.parameters()) and not any(
        isinstance(part, _OTHERS) for part in module.modules()
    )


_TORCH_NORMS = (
    "torch.nn.modules.normalization",
    "torch.nn.modules.batchnorm",
    "torch.nn.modules.instancenorm",
)
_OTHERS = (nn.Linear, nn.Embedding, nn.modules.conv._ConvNd, nn.RNNBase, nn.MultiheadAttention)


def _entries(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape[1:] or shape).numel())


def _identify_finite(call: ModuleCall, out: Examination) -> Fingerprint | None:
    try:
        with _finite(call.module):
            return identify(call.module, shape=call.shape)
    except ValueError as error:
        out.notes.append(f"{call.name} could not be probed: {str(error).partition('. ')[0]}")
        return None


@contextlib.contextmanager
def _finite(module: nn.Module) -> Iterator[None]:
    """Without NaN and infinities in parameters and buffers, so that they hide nothing else."""
    with preserve_state([module]):
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.data.nan_to_num_(nan=1.0, posinf=1.0, neginf=1.0)
        yield


def _conform(out: Examination, modules: dict[str, nn.Module]) -> None:
    """Compare each kind of norm once with the formula that its conventions declare."""
    seen: set[str] = set()
    for norm in out.norms:
        found = norm.fingerprint
        shape = _small_shape(norm)
        key = f"{norm.kind} {found.to_dict()} {shape}"
        usual = found.nearest_torch is not None or found.eps_placement != "inside"
        if key in seen or not usual or found.eps is None:
            continue
        seen.add(key)
        conventions: dict[str, Any] = {
            "eps": found.eps,
            "eps_placement": found.eps_placement,
            "divisor": found.divisor,
            "weight_offset": found.weight_offset,
            "weight_cast": found.weight_cast,
            "num_groups": found.num_groups,
        }
        conventions = {k: v for k, v in conventions.items() if v is not None}
        try:
            with _finite(modules[norm.module]):
                report = check_layer(
                    modules[norm.module], like=str(found.family), shape=shape, **conventions
                )
        except (ValueError, TypeError, RuntimeError) as error:
            out.notes.append(f"{norm.module} could not be checked: {error}")
            continue
        for failure in report.failures:
            # half precision matters where the model runs in it: the rule half_statistics
            if "float16" not in failure.check:
                message = f"{failure.check}: {failure.message}"
                out.findings.append(Finding("does_not_conform", norm.module, message))


def _small_shape(norm: Norm) -> tuple[int, ...]:
    """The shape with few samples and positions, and more than one of each."""
    fixed = set(norm.fingerprint.reduced_axes or ()) if norm.record.trailing else {1}
    return tuple(
        size if axis in fixed else min(max(size, 2), 3 + axis)
        for axis, size in enumerate(norm.shape)
    )
