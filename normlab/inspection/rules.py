"""What usually goes wrong around norms, one function a rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from normlab.fingerprint import identify
from normlab.inspection.candidates import is_torch_norm
from normlab.inspection.model_run import FoundNorm, ModelRun
from normlab.inspection.recognition import small_shape
from normlab.inspection.report import Finding
from normlab.probing.arguments import Around, OneTensor

_CONVOLUTIONS = nn.modules.conv._ConvNd


def check_counts(run: ModelRun) -> Iterator[Finding]:
    """Statistics over a batch of one, and over one element."""
    for norm in run.norms:
        positions = math.prod(norm.call.shape[2:])
        if norm.call.shape[0] == 1 and norm.uses_batch:
            what = (
                "training raises, since there is one value per channel"
                if positions == 1
                else "each sample is normalized by itself, unlike in evaluation"
            )
            yield norm.finding(
                "batch_of_one",
                f"a batch norm receives a batch of one: {what}. Train with larger batches "
                "(drop_last=True in the loader), or use a group norm",
            )
        elif norm.record.needs_positions and positions == 1:
            yield norm.finding(
                "one_element",
                "each statistic is taken over one element, so the output does not depend on the "
                "input. Normalize before the positions are pooled, or use a layer norm",
            )


def check_frozen(run: ModelRun) -> Iterator[Finding]:
    """Frozen by `requires_grad=False`, and still following the batches."""
    for norm in run.norms:
        parameters = list(norm.module.parameters())
        frozen = parameters and not any(p.requires_grad for p in parameters)
        if frozen and norm.records_batch:
            yield norm.finding(
                "frozen_but_updating",
                "its weight and bias are frozen (requires_grad=False), but in training mode it "
                "uses the batch's statistics and keeps moving its running ones. Call .eval() on "
                "it after every model.train()",
            )


def check_stale(run: ModelRun) -> Iterator[Finding]:
    """Running statistics that are used and never moved."""
    for norm in run.norms:
        if norm.uses_running and norm.path in run.fresh:
            yield norm.finding(
                "stale_statistics",
                "it is in evaluation mode, but its running statistics are those of a new layer. "
                "Load a trained state, or run some batches in training mode first",
            )


def check_eps(run: ModelRun) -> Iterator[Finding]:
    """Two eps among the norms of one family, each said in the units in which it is passed."""
    by_family: dict[str, dict[float, list[str]]] = {}
    said: dict[tuple[str, float], str] = {}
    for norm in run.reports:
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


def check_wrong_axes(run: ModelRun) -> Iterator[Finding]:
    """A layer or RMS norm over the last axis of what a convolution lays out as (N, C, *)."""
    order = list(run.trace.calls)
    for norm in run.norms:
        found, ndim = norm.fingerprint, len(norm.call.shape)
        trailing = norm.record.trailing and ndim >= 3
        if not trailing or set(found.reduced_axes or ()) & {0, 1}:
            continue
        here = norm.call
        before = [run.trace.calls[n] for n in order[: order.index(norm.path)]]
        maps = [c for c in before if isinstance(c.module, _CONVOLUTIONS) and c.returned]
        if not maps or maps[-1].returned is None:
            continue
        _, strides, shape, _ = maps[-1].returned
        moved = norm.call.shape == (shape[0], *shape[2:], shape[1])  # channels last, by its shape
        if norm.call.shape == shape and (not moved or here.layout[1] == strides):
            yield norm.finding(
                "wrong_axes",
                "it receives (N, C, *), as a convolution before it lays it out, and takes "
                f"statistics over axes {found.reduced_axes}: over positions, not channels. Move "
                "the channels last and back (x.movedim(1, -1)), or use GroupNorm(1, C)",
            )


def check_optimizer(run: ModelRun) -> Iterator[Finding]:
    """Weight decay on the parameters of norms."""
    decayed = {
        id(p): group["weight_decay"]
        for group in (run.optimizer.param_groups if run.optimizer else ())
        if group.get("weight_decay", 0)
        for p in group["params"]
    }
    for norm in run.norms:
        parameters = norm.module.named_parameters()
        hit = {name: decayed[id(p)] for name, p in parameters if id(p) in decayed}
        if hit:
            decay = ", ".join(f"{d:g}" for d in sorted(set(hit.values())))
            yield norm.finding(
                "decayed_norm",
                f"weight decay {decay} acts on its {' and '.join(hit)}: it pulls the scale of the "
                "features toward 0. Put the parameters of norms in a group with weight_decay=0",
            )


def one_of_each(norms: Iterable[FoundNorm]) -> list[tuple[FoundNorm, list[FoundNorm]]]:
    """The smallest norm of each class and set of conventions, with all that are like it."""
    by_kind: dict[Any, list[FoundNorm]] = {}
    for norm in norms:
        found = norm.fingerprint
        said = found.to_dict()
        sizes = ("nearest_torch", "equivalents", "reasons", "notes", "num_groups")
        conventions = tuple(str(v) for k, v in said.items() if k not in sizes)
        key = norm.report.kind, len(norm.call.shape), conventions, found.nearest_torch is None
        by_kind.setdefault(key, []).append(norm)
    return [(min(alike, key=_features), alike) for alike in by_kind.values()]


def _features(norm: FoundNorm) -> int:
    return math.prod(norm.call.shape[1:])


def probing_shape(norm: FoundNorm) -> tuple[int, ...]:
    """The shape of its input, with few samples and positions where the layer takes them."""
    if isinstance(norm.layer, OneTensor) and norm.layer.has_others:
        return norm.call.shape
    axes = set(norm.fingerprint.reduced_axes or ()) if norm.record.trailing else {1}
    return small_shape(norm.call.shape, {norm.call.shape[a] for a in axes})


def check_half_precision(run: ModelRun) -> Iterator[Finding]:
    """Statistics in half precision where the norm gets a half-precision input.

    That is so under autocast, or where the whole model has 16 bits. Torch's own layers are left
    out: their kernels choose by device.
    """
    half = (torch.bfloat16, torch.float16)
    for norm, alike in one_of_each(run.norms):
        module, under = norm.module, run.under_autocast.get(norm.path)
        if is_torch_norm(module):
            continue
        always = norm.call.dtype in half
        if not always and (under is None or under.dtype not in half):
            continue
        layer = norm.layer
        found = norm.fingerprint
        if not always:
            device = next((p.device.type for p in module.parameters()), "cpu")

            def half_input(layer: Any, x: Tensor, device: str = device) -> Any:
                with torch.autocast(device, dtype=torch.bfloat16):
                    return layer(x)

            try:
                found = identify(Around(layer, half_input), shape=probing_shape(norm))
            except ValueError:  # it cannot be called so; the run under autocast has said it
                continue
        if found.statistics_dtype in half:
            name = str(found.statistics_dtype).removeprefix("torch.")
            where = "" if always else "under autocast "
            yield Finding(
                "half_statistics",
                tuple(n.path for n in alike),
                f"{where}its input is {name}, and so are its statistics. Cast up first "
                "(x.float()), and back at the end",
            )
