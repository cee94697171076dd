"""What usually goes wrong around norms: their state, their inputs, their axes and dtypes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.fingerprint import identify
from normlab.checks.inspection.candidates import is_torch_norm
from normlab.checks.inspection.model_run import Found, FoundNorm, ModelRun, of_each_norm
from normlab.checks.inspection.recognition import small_shape
from normlab.checks.inspection.report import Norm
from normlab.checks.inspection.tracing import run_under_autocast
from normlab.checks.probing import ForeignLayer
from normlab.checks.probing.arguments import OneTensor, Wrapped
from normlab.checks.probing.state import preserve_buffers

HALF = torch.bfloat16, torch.float16


def not_finite(run: ModelRun) -> Found:
    """NaN or infinities before the model was run, that spoil or have spoiled its output.

    The infinities of a mask do not.
    """
    for path, name in spoiled_state(run):
        yield (
            (path,),
            f"{name} has entries that are NaN or infinite. Load an earlier state and look for "
            "the step that spoiled it; running statistics do not recover from a NaN",
        )


def spoiled_state(run: ModelRun) -> list[tuple[str, str]]:
    """Parameters and running statistics that are not finite, and buffers that reach the output."""
    sure, others = list[tuple[str, str]](), list[tuple[str, str]]()
    for path, name in run.state.not_finite:
        module = run.modules[path]
        (sure if name in module._parameters or "running" in name else others).append((path, name))
    if not others or _all_finite(run.outputs()):
        return sure
    with preserve_buffers([run.model]):
        for path, name in others:
            buffers = run.modules[path]._buffers
            buffers[name] = run.modules[path].get_buffer(name).nan_to_num(0, 0, 0)
        return [*sure, *others] if _all_finite(run.outputs()) else sure


def _all_finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(t.isfinite().all()) for t in tensors)


def negative_variance(run: ModelRun) -> Found:
    """Running variances below 0 before the model was run."""
    for path, name in run.state.negative:
        yield (
            (path,),
            f"{name} has negative entries. Load an earlier state, or check how it was averaged",
        )


@of_each_norm
def stale_statistics(norm: FoundNorm, run: ModelRun) -> str | None:
    """Running statistics that are used and never moved."""
    if not norm.uses_running or norm.path not in run.state.fresh:
        return None
    return (
        "it is in evaluation mode, but its running statistics are those of a new layer. "
        "Load a trained state, or run some batches in training mode first"
    )


@of_each_norm
def batch_of_one(norm: FoundNorm, run: ModelRun) -> str | None:
    """Statistics over a batch of one."""
    if norm.call.shape[0] != 1 or not norm.uses_batch:
        return None
    what = (
        "training raises, since there is one value per channel"
        if math.prod(norm.call.shape[2:]) == 1
        else "each sample is normalized by itself, unlike in evaluation"
    )
    return (
        f"a batch norm receives a batch of one: {what}. Train with larger batches "
        "(drop_last=True in the loader), or use a group norm"
    )


@of_each_norm
def one_element(norm: FoundNorm, run: ModelRun) -> str | None:
    """Statistics over one element."""
    if not norm.record.needs_positions or math.prod(norm.call.shape[2:]) != 1:
        return None
    return (
        "each statistic is taken over one element, so the output does not depend on the "
        "input. Normalize before the positions are pooled, or use a layer norm"
    )


@of_each_norm
def frozen_but_updating(norm: FoundNorm, run: ModelRun) -> str | None:
    """Frozen by `requires_grad=False`, and still following the batches."""
    parameters = list(norm.module.parameters())
    if not norm.records_batch or not parameters or any(p.requires_grad for p in parameters):
        return None
    return (
        "its weight and bias are frozen (requires_grad=False), but in training mode it "
        "uses the batch's statistics and keeps moving its running ones. Call .eval() on "
        "it after every model.train()"
    )


def two_eps(run: ModelRun) -> Found:
    """Two eps among the norms of one family, each said in the units in which it is passed.

    A function that makes vectors of length 1, of keys say, is no relative of the norms of blocks.
    """
    alike: list[list[Norm]] = []  # of one family and eps
    for norm in run.reports:
        if norm.fingerprint.eps is not None and norm.kind != "normalize":
            near = next((group for group in alike if _same_eps(group[0], norm)), [])
            alike += [] if near else [near]
            near.append(norm)
    for family in dict.fromkeys(group[0].fingerprint.family for group in alike):
        groups = [group for group in alike if group[0].fingerprint.family == family]
        rare = min(groups, key=len)
        said = [f"{g[0].fingerprint.describe_eps()} ({len(g)}×)" for g in groups if g is not rare]
        if said:
            yield (
                tuple(norm.module for norm in rare),
                f"the layers of family {family} have different eps: "
                f"{rare[0].fingerprint.describe_eps()} here ({len(rare)}×), {', '.join(said)} "
                "elsewhere. Which of them is right cannot be seen here: the code decides "
                "that the weights were trained with",
            )


def _same_eps(one: Norm, other: Norm) -> bool:
    """Whether two norms of one family have one eps, of the mean or, in a clamp, of the length."""
    a, b = one.fingerprint, other.fingerprint
    if a.family != b.family or a.eps is None or b.eps is None:
        return False
    clamps = a.eps_placement == b.eps_placement == "clamp"
    lengths = clamps and math.isclose(a.eps * a.count, b.eps * b.count, rel_tol=1e-3)
    return lengths or math.isclose(a.eps, b.eps, rel_tol=1e-3)


def size_dependent_gain(run: ModelRun) -> Found:
    """A gain that grows with an axis that the norm does not reduce, as the root of the wrong size.

    Each such layer is called at its own shape, and with twice as many positions.
    """
    for path, (layer, shape, axes) in run.misscaled.items():
        for axis in (a for a in range(1, len(shape)) if a not in axes):
            longer = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
            once, twice = (_gain(layer, size) for size in (shape, longer))
            if once and twice and not math.isclose(once, twice, rel_tol=0.1):
                yield (
                    (path,),
                    f"its output is {twice / once:.2f} times as large when axis {axis} is twice as "
                    f"long, and its statistics run over axes {axes}: it is scaled by the size of "
                    "another axis. Scale by the root of how many values share a statistic",
                )
                break


def _gain(layer: nn.Module, shape: tuple[int, ...]) -> float | None:
    """Root mean square of the output for random input; None where it is refused."""
    with contextlib.suppress(Exception), ForeignLayer.open(layer, shape) as probe:
        return float(probe.measure(probe.input(5)).square().mean().sqrt())
    return None


@of_each_norm
def wrong_axes(norm: FoundNorm, run: ModelRun) -> str | None:
    """A layer or RMS norm over the last axis of what a convolution lays out as (N, C, *).

    One that is 1 wide has no positions, and may mix tokens, as in an MLP-Mixer.
    """
    axes, here = norm.fingerprint.reduced_axes, norm.call
    if not norm.record.trailing or len(here.shape) < 3 or set(axes or ()) & {0, 1}:
        return None
    order = list(run.trace.calls)
    before = [run.trace.calls[n] for n in order[: order.index(norm.path)]]
    maps = [c for c in before if isinstance(c.module, nn.modules.conv._ConvNd) and c.returned]
    if not maps or maps[-1].returned is None:
        return None
    kernels = [
        c.module.weight.shape[2:] for c in maps if isinstance(c.module, nn.Conv1d | nn.Conv2d)
    ]
    kernels = [kernel for kernel in kernels if len(kernel) == len(here.shape) - 2]
    if kernels and max(map(math.prod, kernels)) == 1:
        return None
    strides, shape = maps[-1].returned.strides, maps[-1].returned.shape
    moved = here.shape == (shape[0], *shape[2:], shape[1])  # channels last, by its shape
    if here.shape != shape or (moved and here.layout.strides != strides):
        return None
    return (
        "it receives the shape (N, C, *) of a convolution before it and takes statistics over axes "
        f"{axes}: if the channels are still on axis 1, over positions. Then move the channels last "
        "and back (x.movedim(1, -1)), or use GroupNorm(1, C)"
    )


@of_each_norm
def decayed_norm(norm: FoundNorm, run: ModelRun) -> str | None:
    """Weight decay on the parameters of norms."""
    groups = run.optimizer.param_groups if run.optimizer else ()
    decays = {id(p): group.get("weight_decay", 0) for group in groups for p in group["params"]}
    hit = {name: decays.get(id(p), 0) for name, p in norm.module.named_parameters()}
    hit = {name: decay for name, decay in hit.items() if decay}
    if not hit:
        return None
    decay = ", ".join(f"{d:g}" for d in sorted(set(hit.values())))
    offset = norm.fingerprint.weight_offset
    return (
        f"weight decay {decay} acts on its {' and '.join(hit)}: it pulls the scale of the "
        f"features toward {offset or 0:g}. Put the parameters of norms in a group with "
        "weight_decay=0"
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
    sizes = {size for p in norm.module.parameters() for size in p.shape if size > 1}
    return small_shape(norm.call.shape, sizes | {norm.call.shape[a] for a in axes})


def half_statistics(run: ModelRun) -> Found:
    """Statistics in half precision where the norm gets a half-precision input.

    That is so under autocast, or where the whole model has 16 bits. Torch's own layers are left
    out: their kernels choose by device.
    """
    others = [norm for norm in run.norms if not is_torch_norm(norm.module)]
    under_autocast = run_under_autocast(run.model, run.example, run.notes) if others else {}
    for norm, alike in one_of_each(others):
        module, under = norm.module, under_autocast.get(norm.path)
        always = norm.call.dtype in HALF
        if not always and (under is None or under.dtype not in HALF):
            continue
        found = norm.fingerprint
        device = next((p.device.type for p in module.parameters()), "cpu")
        if not always:

            def half_input(layer: Any, x: Tensor, device: str = device) -> Any:
                with torch.autocast(device, dtype=torch.bfloat16):
                    return layer(x)

            try:
                found = identify(Wrapped(norm.layer, half_input), shape=probing_shape(norm))
            except ValueError:  # refused under autocast, as the notes say already
                continue
        if found.statistics_dtype in HALF:
            name = str(found.statistics_dtype).removeprefix("torch.")
            where = "" if always else f"under autocast on {device} "
            yield (
                tuple(n.path for n in alike),
                f"{where}its input is {name}, and so are its statistics. Cast up first "
                "(x.float()), and back at the end",
            )
