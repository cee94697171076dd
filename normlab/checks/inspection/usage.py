"""How norms are used: never, twice, after dropout, and with which conventions."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from normlab.checks.inspection.candidates import has_matrices, is_named_norm, is_scripted
from normlab.checks.inspection.foreign import address
from normlab.checks.inspection.model_run import Found, FoundNorm, ModelRun, of_each_norm

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


def unused_norm(run: ModelRun) -> Found:
    """Norms that were not called, in a module that was."""
    entered = run.trace.entered
    for name, module in run.modules.items():
        leaf = not any(True for _ in module.children())
        if name in entered or is_scripted(module) or not leaf or isinstance(module, nn.Identity):
            continue
        used = any(address(p) in run.trace.parameters for p in module.parameters())
        if used or has_matrices(module) or not is_named_norm(name, module):
            continue
        owner = name.rpartition(".")[0]
        while owner and isinstance(run.modules[owner], _CONTAINERS):
            owner = owner.rpartition(".")[0]
        if owner in entered and any(True for _ in module.parameters()):
            yield (
                (name,),
                "it was not called, though the module that holds it was. Call it, or leave it out: "
                "its parameters are saved and get no gradient",
            )


@of_each_norm
def shared_norm(norm: FoundNorm, run: ModelRun) -> str | None:
    """One batch norm that is called on inputs of different statistics in one pass."""
    streams = run.trace.several.get(norm.path, [])
    if not norm.records_batch or not any(_differ(*streams[0], *other) for other in streams[1:]):
        return None
    return (
        f"it is called {len(streams)} times in one pass, on inputs whose mean or spread "
        "differ: its running statistics mix them, and evaluation fits neither. Give each "
        "stream a norm of its own"
    )


# Half of the channels of a trained network are less than 1 away when noise of the size of its data
# is put in, less than 8 for ten times that, and 40 or more for pixels that were not standardized.
_FAR, _WIDE = 10.0, 30.0


def other_statistics(run: ModelRun) -> Found:
    """The first norm, no later one, whose running statistics are far from those of its input."""
    fitting = 0
    for norm in run.norms:
        running: list[Any] = [getattr(norm.module, f"running_{k}", None) for k in ("mean", "var")]
        streams = run.trace.several.get(norm.path)
        if not norm.uses_running or not streams or norm.path in run.state.fresh:
            continue
        mean, std = streams[0]
        if any(not isinstance(r, Tensor) or r.shape != mean.shape for r in running):
            continue
        deviation = (running[1] + (norm.fingerprint.eps or 0.0)).sqrt()
        away = float(((mean - running[0]).abs() / deviation).median())
        wide = float((std / deviation).median())
        if not (_FAR <= away < 1e30 or _WIDE <= wide < 1e30):  # nor infinite or NaN
            fitting += 1
            continue
        what = f"mean is {away:.0f} running deviations from running_mean"
        if away < _FAR:
            what = f"standard deviation is {wide:.0f} times the running one"
        where = f"{fitting} norms before it fit"
        if not fitting:
            where = (
                "the first such norm: the example may not be scaled as in training, but 0 to 255"
            )
        yield (
            (norm.path,),
            f"the input's {what}, in the median of the channels ({where}). Where something before "
            "it was changed after training, or averaged without its buffers, run training batches "
            "through the model in training mode (torch.optim.swa_utils.update_bn)",
        )
        return


def _differ(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> bool:
    if mean.shape != other_mean.shape:
        return False
    scale = std.maximum(other_std).clamp_min(1e-12)
    apart = float(((mean - other_mean).abs() / scale).median())
    ratio = float((std / other_std.clamp_min(1e-12)).median())
    return apart > 1.0 or not 0.33 < ratio < 3.0


def doubled_norm(run: ModelRun) -> Found:
    """A norm whose only input is the output of another, with nothing between them."""
    alone = (norm for norm in run.norms if norm.fingerprint.followed_by is None)
    outputs = {norm.call.returned: norm.path for norm in alone}
    for norm in run.norms:
        before = outputs.get(norm.call.layout)
        if before is None or before == norm.path:
            continue
        # what else uses the tensor, such as a residual connection, gives the first norm a meaning
        users = run.trace.uses.get(norm.call.layout.address, set())
        inside = {norm.path, before}
        if all(any(u == i or u.startswith(f"{i}.") for i in inside) for u in users):
            yield (
                (norm.path,),
                "its input is the output of another norm and goes nowhere else. Leave one of the "
                "two out",
            )


@of_each_norm
def dropout_before_norm(norm: FoundNorm, run: ModelRun) -> str | None:
    """Dropout in front of a batch norm: its running variance is that of training alone."""
    if not norm.fingerprint.running_statistics:
        return None
    by_output = {call.returned: call.module for call in run.trace.calls.values()}
    before = by_output.get(norm.call.layout)
    if not isinstance(before, _DROPOUTS) or not before.p > 0:
        return None
    return (
        "dropout before it raises the variance of its input in training and not in "
        "evaluation, so its running variance is too large. Put the dropout behind it"
    )


@of_each_norm
def momentum_convention(norm: FoundNorm, run: ModelRun) -> str | None:
    """A momentum that torch reads the other way round, or one that never moves."""
    value = getattr(norm.module, "momentum", None)
    if not norm.fingerprint.running_statistics or not isinstance(value, int | float):
        return None
    if value >= 0.9:
        return (
            f"momentum {value:g} is the weight of the new batch in torch, so the running "
            f"statistics are nearly those of the last batch. If another library's {value:g} "
            f"is meant, pass {1 - value:.4g}"
        )
    if value != 0:
        return None
    return (
        "momentum 0 never moves the running statistics in torch. Pass the weight of the "
        "new batch, such as 0.1"
    )


def _weight_and_offset(norm: FoundNorm) -> tuple[Tensor, int] | None:
    """The parameter named weight, if it has eight entries or more, and its offset."""
    weight, offset = getattr(norm.module, "weight", None), norm.fingerprint.weight_offset
    if offset is None or not isinstance(weight, nn.Parameter) or weight.numel() < 8:
        return None
    weight = weight.detach().double().flatten()
    return (weight, offset) if bool(weight.isfinite().all()) else None


@of_each_norm
def zero_weight(norm: FoundNorm, run: ModelRun) -> str | None:
    """The weight is zero."""
    known = _weight_and_offset(norm)
    if known is None or not bool((known[0] + known[1] == 0).all()):
        return None
    return (
        "its factor is 0 everywhere, so it gives its bias alone. At the end of a residual "
        "branch that may be meant at the start of training; elsewhere nothing passes"
    )


@of_each_norm
def offset_convention(norm: FoundNorm, run: ModelRun) -> str | None:
    """Weights that belong to the other convention, of a factor 1 + weight or weight."""
    known = _weight_and_offset(norm)
    if known is None or not norm.record.trailing:
        return None
    weight, offset = known
    mean, std = float(weight.mean()), float(weight.std())
    negative = float((weight < 0).double().mean())
    if offset == 1 and abs(mean - 1) < 0.3 and std < 0.5:
        return (
            f"it multiplies by 1 + weight, and the mean of its weight is {mean:.2f}: these are "
            "weights of a layer that multiplies by the weight. Subtract 1 when loading them"
        )
    if offset == 0 and abs(mean) < 0.5 * std and 0.15 < negative < 0.85:
        return (
            f"it multiplies by the weight, and {negative:.0%} of its weights are negative around a "
            f"mean of {mean:.2f}: these look like weights of a layer that multiplies by 1 + "
            "weight. Add 1 when loading them"
        )
    return None


@of_each_norm
def bessel_corrected(norm: FoundNorm, run: ModelRun) -> str | None:
    """The divisor n-1 of `x.std()`, where formulas and torch's layers have n."""
    found = norm.fingerprint
    if found.divisor != "n-1":
        return None
    smaller = 1 - (1 - 1 / found.count) ** 0.5
    outside = " and adds eps to the root" if found.eps_placement == "outside" else ""
    return (
        f"it divides with divisor n-1, the default of x.std() and x.var(){outside}, so its output "
        f"is {100 * smaller:.2g} % smaller than that of torch's layer. Where its weights were not "
        "trained with it, write (x.var(..., correction=0) + eps).sqrt()"
    )
