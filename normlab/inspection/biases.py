"""Biases that change nothing, found by changing them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from normlab.inspection.report import Finding
from normlab.inspection.rules import probing_shape
from normlab.inspection.seen import Seen
from normlab.inspection.tracing import run_once
from normlab.probing import copy_module
from normlab.probing.arguments import tensors_in


def check_biases(seen: Seen) -> Iterator[Finding]:
    """Biases that change nothing, since the norm behind them subtracts them again."""
    before: list[Tensor] | None = None
    for norm in seen.norms:
        address, layer = seen.trace.calls[norm.module].layout[0], seen.layers[norm.module]
        found = norm.fingerprint
        still = not seen.modules[norm.module].training and found.running_statistics
        if not found.centered or still:
            continue
        for call in seen.trace.calls.values():
            bias = getattr(call.module, "bias", None)
            feeds = call.returned is not None and call.returned[0] == address
            if not feeds or call.name == norm.module or not isinstance(bias, nn.Parameter):
                continue
            if not _is_removed(layer, bias, probing_shape(norm, layer)):
                continue
            if before is None:
                before = _outputs(seen)
            if before and _is_without_effect(bias, before, seen):
                yield Finding(
                    "cancelled_bias",
                    (call.name,),
                    "its bias has no effect: the norm right behind it subtracts the mean. "
                    "Construct it with bias=False",
                )


def _is_removed(layer: nn.Module, bias: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether the norm, without zeros in its weight, gives the same for another bias."""
    probe = copy_module(layer)
    g = torch.Generator().manual_seed(3)
    x = torch.randn(shape, generator=g).to(bias.device, bias.dtype)
    drawn = torch.randn(bias.shape, generator=g).to(bias.device, bias.dtype)
    channels = [a for a in (1, len(shape) - 1) if a > 0 and shape[a] == bias.numel()]
    try:
        with torch.no_grad():
            for p in probe.parameters():
                p.fill_(1.0)
            before = probe(x)
            for axis in channels:
                view = [bias.numel() if a == axis else 1 for a in range(len(shape))]
                after = probe(x + drawn.view(view))
                if float((after - before).abs().max()) <= 1e-3 * float(before.abs().max()):
                    return True
    except Exception:  # a layer may refuse fewer samples; then the model decides
        return True
    return not channels


def _outputs(seen: Seen) -> list[Tensor]:
    """All floating tensors that the model gives; none where it raises."""
    with contextlib.suppress(Exception):  # it ran in evaluation mode only
        output = run_once(seen.model, seen.example)
        return [t.double() for _, t in tensors_in(output) if t.is_floating_point()]
    return []


def _is_without_effect(bias: nn.Parameter, before: list[Tensor], seen: Seen) -> bool:
    """Whether another bias leaves the output of the model, which it may reach around the norm."""
    kept = bias.data.clone()
    g = torch.Generator().manual_seed(3)
    try:
        bias.data.add_(torch.randn(bias.shape, generator=g).to(bias.device, bias.dtype))
        after = _outputs(seen)
    finally:
        bias.data.copy_(kept)
    # an output whose length depends on its values has changed where its length has
    return [t.shape for t in before] == [t.shape for t in after] and all(
        float((a - b).abs().max()) <= 1e-3 * float(a.abs().max())
        for a, b in zip(before, after, strict=True)
        if a.numel()
    )
