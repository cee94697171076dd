"""Biases that change nothing, found by changing them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normlab.checks.inspection.model_run import Found, FoundNorm, ModelRun
from normlab.checks.inspection.rules import probing_shape
from normlab.checks.inspection.tracing import ModuleCall
from normlab.checks.probing import ForeignLayer


def cancelled_bias(run: ModelRun) -> Found:
    """Biases that change nothing, since the norm behind them subtracts them again."""
    before: list[Tensor] | None = None
    for norm in run.norms:
        if not norm.fingerprint.centered or norm.uses_running:
            continue
        for call in run.trace.calls.values():
            bias = getattr(call.module, "bias", None)
            feeds = call.returned is not None and call.returned.address == norm.call.layout.address
            if not feeds or call.name == norm.path or not isinstance(bias, nn.Parameter):
                continue
            if not _is_removed(norm, call, bias):
                continue
            if before is None:
                before = run.outputs()
            if before and _is_without_effect(bias, before, run):
                yield (
                    (call.name,),
                    "its bias has no effect: the norm right behind it subtracts the mean. "
                    "Construct it with bias=False",
                )


def _axes_of_bias(norm: FoundNorm, call: ModuleCall, size: int) -> list[int]:
    """Axes of the norm's input along which the bias may lie."""
    shape, strides = norm.call.shape, norm.call.layout.strides
    long = [axis for axis in range(1, len(shape)) if shape[axis] == size]
    if isinstance(call.module, nn.modules.conv._ConvNd) and call.returned is not None:
        # axis 1 of what it returned, which the norm may read in another order of axes
        stride = call.returned.strides[-call.module.weight.dim() + 1]
        same = [axis for axis in long if strides[axis] == stride]
        return same if len(same) == 1 else long
    return long


def _is_removed(norm: FoundNorm, call: ModuleCall, bias: Tensor) -> bool:
    """Whether the norm, without zeros in its weight, gives the same for another bias.

    Where several axes are possible, it has to be so for each.
    """
    shape, size, training = probing_shape(norm), bias.numel(), norm.module.training
    g = torch.Generator().manual_seed(3)
    x, drawn = torch.randn(shape, generator=g), torch.randn(size, generator=g)
    axes = [a for a in _axes_of_bias(norm, call, size) if shape[a] == size]
    try:
        with ForeignLayer.open(norm.layer, shape) as layer:
            layer.dtype = bias.dtype
            for tensor in layer.tensors.values():
                tensor.fill_(1.0)
            before = layer.measure(x, training=training)
            for axis in axes:
                view = [size if a == axis else 1 for a in range(len(shape))]
                after = layer.measure(x + drawn.view(view), training=training)
                if float((after - before).abs().max()) > 1e-3 * float(before.abs().max()):
                    return False
    except Exception:  # a layer may refuse fewer samples; then the model decides
        return True
    return True


def _is_without_effect(bias: nn.Parameter, before: list[Tensor], run: ModelRun) -> bool:
    """Whether another bias leaves the output of the model, which it may reach around the norm."""
    kept = bias.data.clone()
    g = torch.Generator().manual_seed(3)
    try:
        bias.data.add_(torch.randn(bias.shape, generator=g).to(bias.device, bias.dtype))
        after = run.outputs()
    finally:
        bias.data.copy_(kept)
    # an output whose length depends on its values has changed where its length has
    return [t.shape for t in before] == [t.shape for t in after] and all(
        float((a - b).abs().max()) <= 1e-3 * float(a.abs().max())
        for a, b in zip(before, after, strict=True)
        if a.numel()
    )
