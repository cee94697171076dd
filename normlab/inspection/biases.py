"""Biases that change nothing, found by changing them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normlab.inspection.report import Examination, Norm
from normlab.inspection.tracing import Example, Trace, run_once

__all__ = ["check_biases"]


def check_biases(
    norms: Sequence[Norm], trace: Trace, model: nn.Module, example: Example, out: Examination
) -> None:
    """Biases that change nothing, since the norm behind them subtracts them again.

    Args:
        norms: of the model.
        trace: of its run.
        model: is run again with other biases, which the caller puts back.
        example: its arguments.
        out: to be filled.
    """
    modules = dict(model.named_modules())
    for norm in norms:
        address = trace.calls[norm.module].layout[0]
        centered = norm.fingerprint.centered
        if not centered or (
            not modules[norm.module].training and norm.fingerprint.running_statistics
        ):
            continue
        for call in trace.calls.values():
            bias = getattr(call.module, "bias", None)
            feeds = call.returned is not None and call.returned[0] == address
            if not feeds or call.name == norm.module or not isinstance(bias, nn.Parameter):
                continue
            if _is_without_effect(bias, modules[norm.module], model, example):
                out.add(
                    "cancelled_bias",
                    call.name,
                    f"its bias has no effect: {norm.module!r} subtracts the mean right after it. "
                    "Construct it with bias=False",
                )


def _is_without_effect(
    bias: nn.Parameter, norm: nn.Module, model: nn.Module, example: Example
) -> bool:
    """Whether another bias changes neither the output of the norm nor that of the model.

    The norm is asked as a copy without zeros in its weight: a weight of 0 hides everything, and
    not only this bias. The model is asked since the bias may reach it around the norm.
    """
    probe = copy.deepcopy(norm)
    with torch.no_grad():
        for p in probe.parameters():
            p.fill_(1.0)
    seen: list[Tensor] = []
    handle = norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    kept = bias.data.clone()
    g = torch.Generator().manual_seed(3)
    try:
        before = list(_floats(run_once(model, example)))
        inside = [probe(x).double() for x in seen]
        seen.clear()
        bias.data.add_(torch.randn(bias.shape, generator=g).to(bias.device, bias.dtype))
        after = list(_floats(run_once(model, example)))
        inside_after = [probe(x).double() for x in seen]
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
