"""Biases that change nothing, found by changing them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from normlab.inspection.report import Finding
from normlab.inspection.seen import Seen
from normlab.inspection.tracing import run_once
from normlab.probing import copy_module


def check_biases(seen: Seen) -> Iterator[Finding]:
    """Biases that change nothing, since the norm behind them subtracts them again."""
    try:
        run_once(seen.model, seen.example)
    except Exception:  # then it ran in evaluation mode only, which the trace has settled
        return
    for norm in seen.norms:
        address = seen.trace.calls[norm.module].layout[0]
        centered = norm.fingerprint.centered
        if not centered or (
            not seen.modules[norm.module].training and norm.fingerprint.running_statistics
        ):
            continue
        for call in seen.trace.calls.values():
            bias = getattr(call.module, "bias", None)
            feeds = call.returned is not None and call.returned[0] == address
            if not feeds or call.name == norm.module or not isinstance(bias, nn.Parameter):
                continue
            if _is_without_effect(bias, seen.modules[norm.module], seen):
                yield Finding(
                    "cancelled_bias",
                    call.name,
                    f"its bias has no effect: {norm.module!r} subtracts the mean right after it. "
                    "Construct it with bias=False",
                )


def _is_without_effect(bias: nn.Parameter, norm: nn.Module, seen: Seen) -> bool:
    """Whether another bias changes neither the output of the norm nor that of the model.

    The norm is asked as a copy without zeros in its weight: a weight of 0 hides everything, and
    not only this bias. The model is asked since the bias may reach it around the norm.
    """
    probe = copy_module(norm)
    with torch.no_grad():
        for p in probe.parameters():
            p.fill_(1.0)
    inputs: list[Tensor] = []
    handle = norm.register_forward_pre_hook(lambda _, given: inputs.append(given[0].clone()))
    kept = bias.data.clone()
    g = torch.Generator().manual_seed(3)
    try:
        before = list(_floats(run_once(seen.model, seen.example)))
        inside = [probe(x).double() for x in inputs]
        inputs.clear()
        bias.data.add_(torch.randn(bias.shape, generator=g).to(bias.device, bias.dtype))
        after = list(_floats(run_once(seen.model, seen.example)))
        inside_after = [probe(x).double() for x in inputs]
    finally:
        handle.remove()
        bias.data.copy_(kept)
    return bool(before) and all(
        float((a - b).detach().abs().max()) <= 1e-3 * float(a.detach().abs().max())
        for a, b in zip(before + inside, after + inside_after, strict=True)
        if a.numel()
    )


def _floats(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output.double()
    elif isinstance(output, dict):
        for value in output.values():
            yield from _floats(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _floats(value)
