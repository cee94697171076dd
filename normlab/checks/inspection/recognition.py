"""Which norms a model has: each kind identified once, and what could not be named."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.fingerprint import Fingerprint, identify
from normlab.checks.inspection.candidates import (
    has_matrices,
    is_named_norm,
    is_scripted,
    may_be_norm,
)
from normlab.checks.inspection.foreign import REFUSALS, first_line, is_dense
from normlab.checks.inspection.model_run import FoundNorm, ModelRun
from normlab.checks.inspection.report import Norm
from normlab.checks.inspection.statistics import Division
from normlab.checks.inspection.tracing import FunctionCall, ModuleCall
from normlab.checks.probing.arguments import OneTensor
from normlab.checks.probing.state import finite, tensors_of
from normlab.norms import FROZEN, NORMS

_LARGE = 2**21  # entries of an input at which an unknown norm is not looked at again


def recognize(run: ModelRun, progress: Callable[[int, int], None] | None = None) -> None:
    """Identify everything that may be a norm in a model that was run."""
    trace, known = run.trace, Kinds()
    calls = [c for c in trace.calls.values() if may_be_norm(c.name, c.module)]
    for k, call in enumerate(calls):
        if progress is not None:
            progress(k, len(calls))
        if not run.has_inside(call.name) and _may_divide(call, run):
            _look_at(call, run, known)
    for name, module in run.modules.items():
        if (
            name in trace.entered
            and name not in trace.calls
            and is_named_norm(name, module)
            and not isinstance(module, nn.Identity)
            and not has_matrices(module)
            and not run.has_inside(name)
            and not any(True for _ in module.children())
        ):
            run.unknown[name] = "it was given no dense tensor as an argument"
    for function in trace.functions.values():
        if not run.is_inside(function.owner):
            _look_at_function(function, run, known)
    for division in trace.divisions or ():
        if not run.is_inside(division.owner):
            _list_division(division, run)


def _may_divide(call: ModuleCall, run: ModelRun) -> bool:
    """Whether a module was seen to normalize, or is small or named like a norm."""
    small = not any(True for _ in call.module.children())
    named = is_named_norm(call.name, call.module) and not has_matrices(call.module)
    if run.trace.divisions is None or small or named:
        return True
    below = f"{call.name}." if call.name else ""
    parts: list[Division | FunctionCall] = [*run.trace.divisions, *run.trace.functions.values()]
    return any(
        (part.owner == call.name or part.owner.startswith(below)) and not part.of_weights
        for part in parts
    )


def _look_at(call: ModuleCall, run: ModelRun, known: Kinds) -> None:
    named = is_named_norm(call.name, call.module)
    fingerprint: Fingerprint | None = None
    if call.returned is None:
        reason = "it gives no floating tensor"
    elif call.returned.shape != call.shape:
        reason = f"it makes {call.returned.shape} of {call.shape}; a norm keeps the shape"
    else:
        plain = call.arguments.plain and not call.result
        layer = call.module if plain else OneTensor(call.module, call.arguments, call.result or ())
        fingerprint, reason = known.identify(layer, call.shape, call.dtype, alone=plain)
        if fingerprint is not None and fingerprint.family == "identity":
            return
        if fingerprint is not None and fingerprint.family == FROZEN:
            run.frozen.append(call.name)
            return
        alone = not any(True for _ in call.module.parameters())
        if call.of_weights and alone and fingerprint is not None and fingerprint.reduced_axes:
            run.of_weights.append(call.name)
            return
        if fingerprint is not None and fingerprint.family is not None:
            run.norms.append(FoundNorm(call.name, call.module, call, layer, fingerprint))
            return
    if fingerprint is not None and fingerprint.reduced_axes == ():
        if named:
            run.no_statistics.append(call.name)
        return
    resembles = fingerprint is not None and fingerprint.resembles_norm
    if resembles and fingerprint is not None and fingerprint.reduced_axes:
        run.misscaled[call.name] = (layer, call.shape, fingerprint.reduced_axes)
    if resembles or (named and not has_matrices(call.module)):
        run.unknown[call.name] = reason


def _look_at_function(call: FunctionCall, run: ModelRun, known: Kinds) -> None:
    if call.of_weights:
        run.of_weights.append(call.owner)
        return
    layer = OneTensor(call.function, call.arguments)
    fingerprint, reason = known.identify(layer, call.shape, None, alone=False)
    if fingerprint is not None and fingerprint.family in NORMS:
        kind = call.name.rpartition(".")[2]
        run.functions.append(Norm(call.name, kind, call.shape, fingerprint))
    else:
        run.unknown[call.name] = reason


def _list_division(division: Division, run: ModelRun) -> None:
    if division.of_weights:
        run.of_weights.append(division.owner)
        return
    reason = f"it divides by a statistic of its own input, at {', '.join(division.lines)}"
    said = {name.rpartition(".")[0] for name, other in run.unknown.items() if other == reason}
    if division.owner not in said:
        run.unknown[division.name] = reason


def small_shape(shape: tuple[int, ...], kept: set[int]) -> tuple[int, ...]:
    """The shape of an input with few samples and positions, and more than one of each.

    Sizes that parameters have are kept.
    """
    return tuple(
        size if size in kept else min(max(size, 2), 3 + axis) for axis, size in enumerate(shape)
    )


class Kinds:
    """Fingerprints by class, code, configuration, and shapes of parameters and input."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Fingerprint | None, str]] = {}

    def identify(
        self, layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype | None, *, alone: bool
    ) -> tuple[Fingerprint | None, str]:
        """What a layer is, and why it could not be named.

        One that takes its input alone needs fewer samples and positions.
        """
        sizes = {size for t in _dense(layer).values() for size in t.shape}
        if not sizes & {*shape[1:]}:  # nothing tells its width, which is that of the model
            sizes |= {shape[1], shape[-1]} if len(shape) > 1 else set()
        small = small_shape(shape, sizes) if alone else shape
        key = (_key(layer), small, dtype) if alone else None
        if key not in self._known or key is None:
            self._known[key] = self._probe(layer, small, shape)
        found, reason = self._known[key]
        # each gets a report of its own
        return (None if found is None else dataclasses.replace(found)), reason

    def _probe(
        self, layer: nn.Module, small: tuple[int, ...], shape: tuple[int, ...]
    ) -> tuple[Fingerprint | None, str]:
        try:
            with finite(layer) as clean:
                try:
                    found = identify(clean, shape=small)
                except ValueError:
                    if small == shape:
                        raise
                    found = identify(clean, shape=shape)
                else:
                    record = NORMS.get(str(found.family))
                    cut = {a for a, (m, n) in enumerate(zip(small, shape, strict=True)) if m != n}
                    by_size = found.family is None and found.resembles_norm
                    if (cut and by_size and math.prod(shape) <= _LARGE) or (
                        record and record.trailing and cut & set(found.reduced_axes or ())
                    ):
                        found = identify(clean, shape=shape)
        except REFUSALS as error:
            return None, f"it could not be probed: {first_line(error).partition('. Pass')[0]}"
        return found, found.reasons.get("family", "")


_OWN = set(vars(nn.Module()))
_SIMPLE = (int, float, str, bool, type(None), torch.dtype)


def _plain(value: Any) -> Any:
    if isinstance(value, _SIMPLE):
        return repr(value)
    if isinstance(value, list | tuple):
        return tuple(_plain(v) for v in value)
    return getattr(value, "__code__", None) or id(value)


def _key(layer: nn.Module) -> Any:
    """A key that layers share which compute the same."""
    parts = []
    for name, part in layer.named_modules():
        forward = vars(part).get("forward") or getattr(type(part), "forward", None)
        code = getattr(forward, "__code__", id(forward))
        own = len(part._forward_hooks) + len(part._forward_pre_hooks) or is_scripted(part)
        options = tuple(
            (k, _plain(v))
            for k, v in sorted(vars(part).items())
            if k not in _OWN and not isinstance(v, Tensor)
        )
        parts.append((name, type(part), code, options, id(part) if own else 0))
    tensors = tuple(
        (name, tuple(t.shape), t.dtype, t.device, float(t.detach()) if t.numel() == 1 else None)
        for name, t in sorted(_dense(layer).items())
        if t.is_floating_point()
    )
    return tuple(parts), tensors


def _dense(layer: nn.Module) -> dict[str, Tensor]:
    return {name: t for name, t in tensors_of(layer).items() if is_dense(t)}
