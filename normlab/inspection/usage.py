"""How norms are used: never, twice over, behind dropout, and with which conventions."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from normlab.inspection.candidates import has_matrices, is_named_norm, is_scripted
from normlab.inspection.model_run import FoundNorm, ModelRun
from normlab.inspection.report import Finding

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


def check_unused(run: ModelRun) -> Iterator[Finding]:
    """Norms that were not called, in a module that was."""
    for name, module in run.modules.items():
        leaf = not any(True for _ in module.children())
        seen_or_hidden = name in run.trace.entered or is_scripted(module)
        if seen_or_hidden or not leaf or isinstance(module, nn.Identity):
            continue
        used = any(p.data_ptr() in run.trace.parameters for p in module.parameters())
        if used or has_matrices(module) or not is_named_norm(name, module):
            continue
        owner = name.rpartition(".")[0]
        while owner and isinstance(run.modules[owner], _CONTAINERS):
            owner = owner.rpartition(".")[0]
        if owner in run.trace.entered and any(True for _ in module.parameters()):
            yield Finding(
                "unused_norm",
                (name,),
                "it was not called, though the module that holds it was. Call it, or leave it out: "
                "its parameters are saved and get no gradient",
            )


def check_shared(run: ModelRun) -> Iterator[Finding]:
    """One batch norm that is called on inputs of different statistics in one pass."""
    for norm in run.norms:
        streams = run.trace.several.get(norm.path, [])
        if not norm.records_batch or len(streams) < 2:
            continue
        (mean, std), *others = streams
        if any(_differ(mean, std, *other) for other in others):
            yield norm.finding(
                "shared_norm",
                f"it is called {len(streams)} times in one pass, on inputs whose mean or spread "
                "differ: its running statistics mix them, and evaluation fits neither. Give each "
                "stream a norm of its own",
            )


def _differ(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> bool:
    if mean.shape != other_mean.shape:
        return False
    scale = torch.maximum(std, other_std).clamp_min(1e-12)
    apart = float(((mean - other_mean).abs() / scale).median())
    ratio = float((std / other_std.clamp_min(1e-12)).median())
    return apart > 1.0 or not 0.33 < ratio < 3.0


def check_doubled(run: ModelRun) -> Iterator[Finding]:
    """A norm whose only input is the output of another, with nothing between them."""
    outputs = {
        norm.call.returned: norm.path for norm in run.norms if norm.fingerprint.followed_by is None
    }
    for norm in run.norms:
        call = norm.call
        before = outputs.get(call.layout)
        if before is None or before == norm.path:
            continue
        # what else uses the tensor, such as a residual connection, gives the first norm a meaning
        users = run.trace.uses.get(call.layout[0], set())
        inside = {norm.path, before}
        if all(any(u == i or u.startswith(f"{i}.") for i in inside) for u in users):
            yield norm.finding(
                "doubled_norm",
                "its input is the output of another norm and goes nowhere else. Leave one of the "
                "two out",
            )


def check_dropout(run: ModelRun) -> Iterator[Finding]:
    """Dropout in front of a batch norm: its running variance is that of training alone."""
    by_output = {call.returned: call for call in run.trace.calls.values()}
    for norm in run.norms:
        if not norm.fingerprint.running_statistics:
            continue
        before = by_output.get(norm.call.layout)
        if before is not None and isinstance(before.module, _DROPOUTS) and before.module.p > 0:
            yield norm.finding(
                "dropout_before_norm",
                "dropout before it raises the variance of its input in training and not in "
                "evaluation, so its running variance is too large. Put the dropout behind it",
            )


def check_momentum(run: ModelRun) -> Iterator[Finding]:
    """A momentum that torch reads the other way round, or one that never moves."""
    for norm in run.norms:
        value = getattr(norm.module, "momentum", None)
        if not norm.fingerprint.running_statistics or not isinstance(value, int | float):
            continue
        if value >= 0.9:
            yield norm.finding(
                "momentum_convention",
                f"momentum {value:g} is the weight of the new batch in torch, so the running "
                f"statistics are nearly those of the last batch. If another library's {value:g} "
                f"is meant, pass {1 - value:.4g}",
            )
        elif value == 0:
            yield norm.finding(
                "momentum_convention",
                "momentum 0 never moves the running statistics in torch. Pass the weight of the "
                "new batch, such as 0.1",
            )


def _main_weight(module: nn.Module) -> Tensor | None:
    """The one parameter that is called weight, if it is a vector of some length."""
    weight = getattr(module, "weight", None)
    if isinstance(weight, nn.Parameter) and weight.numel() >= 8:
        return weight.detach().double().flatten()
    return None


def check_weights(run: ModelRun) -> Iterator[Finding]:
    """Factors of 0 everywhere, and weights that belong to the other convention."""
    for norm in run.norms:
        module, offset = norm.module, norm.fingerprint.weight_offset
        weight = _main_weight(module)
        if weight is None or offset is None or not bool(weight.isfinite().all()):
            continue
        if bool((weight + offset == 0).all()):
            yield norm.finding(
                "zero_weight",
                "its factor is 0 everywhere, so it gives its bias alone. At the end of a residual "
                "branch that may be meant at the start of training; elsewhere nothing passes",
            )
        elif norm.record.trailing:
            yield from _check_offset(norm, weight, int(offset))


def _check_offset(norm: FoundNorm, weight: Tensor, offset: int) -> Iterator[Finding]:
    mean, std = float(weight.mean()), float(weight.std())
    negative = float((weight < 0).double().mean())
    if offset == 1 and abs(mean - 1) < 0.3 and std < 0.5:
        text = (
            f"it multiplies by 1 + weight, and the mean of its weight is {mean:.2f}: these are "
            "weights of a layer that multiplies by the weight. Subtract 1 when loading them"
        )
    elif offset == 0 and abs(mean) < 0.5 * std and 0.15 < negative < 0.85:
        text = (
            f"it multiplies by the weight, and {negative:.0%} of its weights are negative around a "
            f"mean of {mean:.2f}: these look like weights of a layer that multiplies by 1 + "
            "weight. Add 1 when loading them"
        )
    else:
        return
    yield norm.finding("offset_convention", text)
