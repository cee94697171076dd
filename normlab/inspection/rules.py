"""What usually goes wrong around norms, one function a rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from normlab.fingerprint import identify
from normlab.inspection.candidates import is_torch_norm
from normlab.inspection.recognition import small_shape
from normlab.inspection.report import Finding, Norm
from normlab.inspection.seen import Seen
from normlab.probing.arguments import OneTensor

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
                (norm.module,),
                f"a batch norm receives a batch of one: {what}. Train with larger batches "
                "(drop_last=True in the loader), or use a group norm",
            )
        elif norm.record.needs_positions and positions == 1:
            yield Finding(
                "one_element",
                (norm.module,),
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
                (norm.module,),
                "its weight and bias are frozen (requires_grad=False), but in training mode it "
                "uses the batch's statistics and keeps moving its running ones. Call .eval() on "
                "it after every model.train()",
            )


def check_state(seen: Seen) -> Iterator[Finding]:
    """What the state held before the model was run, and running statistics that never moved."""
    yield from seen.state.findings
    for norm in seen.norms:
        still = not seen.modules[norm.module].training and norm.fingerprint.running_statistics
        if still and norm.module in seen.state.fresh:
            yield Finding(
                "stale_statistics",
                (norm.module,),
                "it is in evaluation mode, but its running statistics are those of a new layer. "
                "Load a trained state, or run some batches in training mode first",
            )


def check_eps(seen: Seen) -> Iterator[Finding]:
    """Two eps among the norms of one family, each said in the units in which it is passed."""
    by_family: dict[str, dict[float, list[str]]] = {}
    said: dict[tuple[str, float], str] = {}
    for norm in (*seen.norms, *seen.functions):
        found = norm.fingerprint
        if found.family is None or found.eps is None:
            continue
        known = by_family.setdefault(found.family, {})
        near = next((e for e in known if math.isclose(e, found.eps, rel_tol=1e-3)), found.eps)
        known.setdefault(near, []).append(norm.module)
        said.setdefault((found.family, near), found.describe_eps())
    for family, known in by_family.items():
        if len(known) > 1:
            rare = min(known, key=lambda e: len(known[e]))
            others = ", ".join(
                f"{said[family, e]} ({len(n)}×)" for e, n in known.items() if e != rare
            )
            yield Finding(
                "two_eps",
                tuple(known[rare]),
                f"the layers of family {family} have different eps: {said[family, rare]} here "
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
        _, strides, shape, _ = maps[-1].returned
        moved = norm.shape == (shape[0], *shape[2:], shape[1])  # channels last, by its shape
        if norm.shape == shape and (not moved or here.layout[1] == strides):
            yield Finding(
                "wrong_axes",
                (norm.module,),
                "it receives (N, C, *), as a convolution before it lays it out, and takes "
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
    for norm in seen.norms:
        parameters = seen.modules[norm.module].named_parameters()
        hit = {name: decayed[id(p)] for name, p in parameters if id(p) in decayed}
        if hit:
            decay = ", ".join(f"{d:g}" for d in sorted(set(hit.values())))
            yield Finding(
                "decayed_norm",
                (norm.module,),
                f"weight decay {decay} acts on its {' and '.join(hit)}: it pulls the scale of the "
                "features toward 0. Put the parameters of norms in a group with weight_decay=0",
            )


class _UnderAutocast(nn.Module):
    def __init__(self, module: nn.Module, device: str):
        super().__init__()
        self.module, self.device = module, device

    def forward(self, x: Tensor) -> Any:
        with torch.autocast(self.device, dtype=torch.bfloat16):
            return self.module(x)


def one_of_each(norms: Iterable[Norm]) -> list[tuple[Norm, list[Norm]]]:
    """The smallest norm of each class and set of conventions, with all that are like it."""
    by_kind: dict[Any, list[Norm]] = {}
    for norm in norms:
        found = norm.fingerprint
        said = found.to_dict()
        sizes = ("nearest_torch", "equivalents", "reasons", "notes", "num_groups")
        conventions = tuple(str(v) for k, v in said.items() if k not in sizes)
        key = norm.kind, len(norm.shape), conventions, found.nearest_torch is None
        by_kind.setdefault(key, []).append(norm)
    return [(min(alike, key=_features), alike) for alike in by_kind.values()]


def _features(norm: Norm) -> int:
    return math.prod(norm.shape[1:])


def probing_shape(norm: Norm, layer: nn.Module) -> tuple[int, ...]:
    """The shape of its input, with few samples and positions where the layer takes them."""
    if isinstance(layer, OneTensor) and layer.has_others:
        return norm.shape
    axes = set(norm.fingerprint.reduced_axes or ()) if norm.record.trailing else {1}
    return small_shape(norm.shape, {norm.shape[a] for a in axes})


def check_half_precision(seen: Seen) -> Iterator[Finding]:
    """Statistics in half precision where the norm gets a half-precision input.

    That is so under autocast, or where the whole model has 16 bits. Torch's own layers are left
    out: their kernels choose by device.
    """
    half = (torch.bfloat16, torch.float16)
    for norm, alike in one_of_each(seen.norms):
        module, under = seen.modules[norm.module], seen.under_autocast.get(norm.module)
        if is_torch_norm(module):
            continue
        always = seen.trace.calls[norm.module].dtype in half
        if not always and (under is None or under.dtype not in half):
            continue
        layer = seen.layers[norm.module]
        found = norm.fingerprint
        if not always:
            device = next((p.device.type for p in module.parameters()), "cpu")
            try:
                found = identify(_UnderAutocast(layer, device), shape=probing_shape(norm, layer))
            except ValueError:  # it cannot be called so; the run under autocast has said it
                continue
        if found.statistics_dtype in half:
            name = str(found.statistics_dtype).removeprefix("torch.")
            where = "" if always else "under autocast "
            yield Finding(
                "half_statistics",
                tuple(n.module for n in alike),
                f"{where}its input is {name}, and so are its statistics. Cast up first "
                "(x.float()), and back at the end",
            )
