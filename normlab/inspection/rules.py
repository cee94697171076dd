"""What usually goes wrong around norms, one function a rule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from normlab.fingerprint import identify
from normlab.inspection.report import Finding, Norm
from normlab.inspection.seen import Seen

_CONVOLUTIONS = nn.modules.conv._ConvNd


def _uses_batch(norm: Norm, module: nn.Module) -> bool:
    """Whether the norm takes statistics over the batch in the mode that it is in."""
    found = norm.fingerprint
    return norm.record.over_batch and (module.training or not found.running_statistics)


def check_counts(seen: Seen) -> Iterator[Finding]:
    """Statistics over a batch of one, and over one element."""
    for norm in seen.norms:
        positions = math.prod(norm.shape[2:])
        if norm.shape[0] == 1 and _uses_batch(norm, seen.modules[norm.module]):
            what = (
                "training raises, since there is one value per channel"
                if positions == 1
                else "each sample is normalized by itself, unlike in evaluation"
            )
            yield Finding(
                "batch_of_one",
                norm.module,
                f"a batch norm receives a batch of one: {what}. Train with larger batches "
                "(drop_last=True in the loader), or use a group norm",
            )
        elif norm.record.needs_positions and positions == 1:
            yield Finding(
                "one_element",
                norm.module,
                "each statistic is taken over one element, so the output does not depend on the "
                "input. Normalize before the positions are pooled, or use a layer norm",
            )


def check_frozen(seen: Seen) -> Iterator[Finding]:
    """Frozen by `requires_grad=False`, and still following the batches."""
    for norm in seen.norms:
        module = seen.modules[norm.module]
        parameters = list(module.parameters())
        if not norm.fingerprint.running_statistics or not module.training or not parameters:
            continue
        if not any(p.requires_grad for p in parameters):
            yield Finding(
                "frozen_but_updating",
                norm.module,
                "its weight and bias are frozen (requires_grad=False), but in training mode it "
                "uses the batch's statistics and keeps moving its running ones. Call .eval() on "
                "it after every model.train()",
            )


def check_buffers(seen: Seen) -> Iterator[Finding]:
    """Buffers and parameters that are not finite, and running statistics that never moved."""
    for norm in seen.norms:
        module = seen.modules[norm.module]
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                yield Finding(
                    "not_finite",
                    norm.module,
                    f"{name} has entries that are NaN or infinite. Load an earlier state and look "
                    "for the step that spoiled it; running statistics do not recover from a NaN",
                )
            elif "var" in name and tensor.is_floating_point() and bool((tensor < 0).any()):
                yield Finding(
                    "negative_variance",
                    norm.module,
                    f"{name} has negative entries. Load an earlier state, or check how it was "
                    "averaged",
                )
        if norm.fingerprint.running_statistics and not module.training and _is_unused(tensors):
            yield Finding(
                "stale_statistics",
                norm.module,
                "it is in evaluation mode, but its running statistics are those of a new layer. "
                "Load a trained state, or run some batches in training mode first",
            )


def _is_unused(tensors: dict[str, Tensor]) -> bool:
    counters = [t for t in tensors.values() if not t.is_floating_point() and t.numel() == 1]
    means = [t for n, t in tensors.items() if "mean" in n and t.is_floating_point()]
    variances = [t for n, t in tensors.items() if "var" in n and t.is_floating_point()]
    initial = all(bool((t == 0).all()) for t in means)
    initial = initial and all(bool((t == 1).all()) for t in variances)
    return bool(means) and bool(variances) and initial and all(int(t) == 0 for t in counters)


def check_eps(seen: Seen) -> Iterator[Finding]:
    """Two eps among the norms of one family."""
    by_family: dict[str, dict[float, list[str]]] = {}
    for norm in seen.norms:
        found = norm.fingerprint
        if found.family is None or found.eps is None:
            continue
        known = by_family.setdefault(found.family, {})
        near = next((e for e in known if math.isclose(e, found.eps, rel_tol=1e-3)), found.eps)
        known.setdefault(near, []).append(norm.module)
    for family, known in by_family.items():
        if len(known) > 1:
            rare = min(known, key=lambda e: len(known[e]))
            others = ", ".join(f"{e:.6g} ({len(n)}×)" for e, n in known.items() if e != rare)
            yield Finding(
                "two_eps",
                known[rare][0],
                f"the layers of family {family} have different eps: {rare:.6g} here "
                f"({len(known[rare])}×), {others} elsewhere. Pass the same eps to all, the one "
                "that the weights were trained with",
            )


def check_wrong_axes(seen: Seen) -> Iterator[Finding]:
    """A layer or RMS norm over the last axis of what a convolution lays out as (N, C, *)."""
    order = list(seen.trace.calls)
    for norm in seen.norms:
        found, ndim = norm.fingerprint, len(norm.shape)
        trailing = norm.record.trailing and ndim >= 3
        if not trailing or set(found.reduced_axes or ()) & {0, 1}:
            continue
        here = seen.trace.calls[norm.module]
        before = [seen.trace.calls[n] for n in order[: order.index(norm.module)]]
        maps = [c for c in before if isinstance(c.module, _CONVOLUTIONS) and c.returned]
        if not maps or maps[-1].returned is None:
            continue
        _, strides, shape = maps[-1].returned
        moved = norm.shape == (shape[0], *shape[2:], shape[1])  # channels last, by its shape
        if norm.shape == shape and (not moved or here.layout[1] == strides):
            yield Finding(
                "wrong_axes",
                norm.module,
                f"it receives {norm.shape}, laid out (N, C, *) by {maps[-1].name!r}, and takes "
                f"statistics over axes {found.reduced_axes}: over positions, not channels. Move "
                "the channels last and back (x.movedim(1, -1)), or use GroupNorm(1, C)",
            )


def check_optimizer(seen: Seen) -> Iterator[Finding]:
    """Weight decay on the parameters of norms."""
    decayed = {
        id(p): group["weight_decay"]
        for group in (seen.optimizer.param_groups if seen.optimizer else ())
        if group.get("weight_decay", 0)
        for p in group["params"]
    }
    hit = [
        (norm.module, name, decayed[id(p)])
        for norm in seen.norms
        for name, p in seen.modules[norm.module].named_parameters()
        if id(p) in decayed
    ]
    if hit:
        module, name, decay = hit[0]
        others = f", and on {len(hit) - 1} more parameters of norms" if len(hit) > 1 else ""
        yield Finding(
            "decayed_norm",
            module,
            f"weight decay {decay:g} acts on its {name}{others}: it pulls the scale of the "
            "features toward 0. Put the parameters of norms in a group with weight_decay=0",
        )


class _UnderAutocast(nn.Module):
    def __init__(self, module: nn.Module, device: str):
        super().__init__()
        self.module, self.device = module, device

    def forward(self, x: Tensor) -> Any:
        with torch.autocast(self.device, dtype=torch.bfloat16):
            return self.module(x)


def check_half_precision(seen: Seen) -> Iterator[Finding]:
    """Statistics in half precision where autocast hands the norm a half-precision input.

    Torch's own layers are left out: their kernels choose by device.
    """
    for norm in seen.norms:
        module, call = seen.modules[norm.module], seen.under_autocast.get(norm.module)
        if call is None or call.dtype != torch.bfloat16:
            continue
        if type(module).__module__.startswith("torch.nn."):
            continue
        device = next((p.device.type for p in module.parameters()), "cpu")
        found = identify(_UnderAutocast(module, device), shape=norm.shape)
        if found.statistics_dtype == torch.bfloat16:
            yield Finding(
                "half_statistics",
                norm.module,
                "under autocast its input is bfloat16, and so are its statistics. Cast up first "
                "(x.float()), and back at the end",
            )
