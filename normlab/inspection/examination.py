"""Walk a model, identify and check its norms, and apply the rules."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from normlab.checks import check_layer
from normlab.inspection import biases, devices, padding, rules, usage
from normlab.inspection.catalogue import RULES
from normlab.inspection.memory import watch_memory
from normlab.inspection.model_run import ModelRun, read_state
from normlab.inspection.recognition import recognize
from normlab.inspection.report import Examination, Finding, grouped
from normlab.inspection.tracing import Example, ModuleCall, trace_model
from normlab.probing import preserve_state, uncompiled
from normlab.probing.arguments import OneTensor
from normlab.probing.state import finite, preserve_buffers


def doctor(
    model: nn.Module,
    example_input: Any,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    ignore: Collection[str] = (),
    select: Collection[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Examination:
    """Look through a model for what usually goes wrong around norms.

    The state is read first. Then the model is run on the example to see which inputs its norms
    receive, and which functions of torch that normalize it calls. What may be a norm is identified
    by probing (:func:`normlab.identify`), each kind once, and compared with the formula of its
    family (:func:`normlab.checks.check_layer`). Model, modes, hooks, random streams and gradients
    are left as they were.

    What looks like a norm, by the name of its class or attribute or by what it does, and could not
    be named is listed as `unknown`: nothing is said about it, so a report with unknown norms is no
    all-clear.

    Of a model in DistributedDataParallel, the module inside is looked at. Where several processes
    run and the model has gradients, those of its norms are compared over the processes, so that
    each has to call this (or none, with `ignore=["partial_gradients"]`).

    Args:
        model: in the mode in which it is used: what is wrong in training may be right in
            evaluation.
        example_input: a tensor, a tuple of arguments, or a dict of named ones. Padding is seen
            by a mask among them, by the `padding_idx` of an embedding, or by zeros at the end of
            some samples.
        optimizer: of the model, to look for weight decay on the parameters of norms.
        ignore: rules to leave out.
        select: rules to apply; all, where none is given.
        progress: called with how many calls were looked at, and of how many.

    Raises:
        TypeError: `model` is no module.
        ValueError: the model raises on the example in training and in evaluation mode, or it is
            scripted or compiled, or a rule is unknown.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
        >>> [(f.rule, f.modules) for f in doctor(net, torch.randn(8, 4)).findings]
        [('cancelled_bias', ('0',))]
    """
    _check_model(model)
    _check_rules(ignore=ignore, select=select)
    wanted = (set(select) or set(RULES)) - set(ignore)
    given, model = model, devices.without_data_parallel(model)
    example, out = Example.of(example_input), Examination()
    peak = watch_memory()
    with preserve_state([model]), uncompiled():
        findings, fresh = read_state(model)
        trace = trace_model(model, example, notes=out.notes)
        as_it_is = not out.notes
        modules = dict(model.named_modules())
        run = ModelRun(given, model, example, optimizer, fresh, trace, modules)
        recognize(run, progress)
        run.under_autocast = _under_autocast(model, example, out)
        watched = [norm.path for norm in devices.updating(run)]
        if watched and as_it_is and "recomputed_batch_norm" in wanted:
            run.recomputed = devices.find_recomputed(model, example, watched, out.notes)
        if "partial_gradients" in wanted:
            run.partial = devices.find_partial(model, run.norms)
        findings += [finding for rule in _RULES for finding in rule(run)]
        findings += _conform(run, out)
    out.findings = grouped(f for f in findings if f.rule in wanted)
    out.norms, out.unknown, out.reasons = run.reports, list(run.unknown), run.unknown
    if run.of_weights:
        count, first = len(run.of_weights), run.of_weights[0]
        out.notes.append(
            f"{count} module{'s normalize' if count > 1 else ' normalizes'} a weight and not the "
            f"input (weight standardization), the first {first or '(the model)'}"
        )
    out.peak_memory = peak()
    return out


_RULES = (
    rules.check_stale,
    rules.check_counts,
    rules.check_frozen,
    rules.check_eps,
    rules.check_wrong_axes,
    padding.check_padding,
    biases.check_biases,
    rules.check_optimizer,
    rules.check_half_precision,
    usage.check_unused,
    usage.check_shared,
    usage.check_doubled,
    usage.check_dropout,
    usage.check_momentum,
    usage.check_weights,
    devices.check_data_parallel,
    devices.check_recomputed,
    devices.check_partial_gradients,
)


def _check_model(model: Any) -> None:
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError(
            "model: it is scripted or traced, so nothing can be seen inside of it. Pass the module "
            "that torch.jit.script or torch.jit.trace was given"
        )
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}; expected a module")
    if hasattr(model, "_orig_mod"):
        raise ValueError(
            "model: it is compiled, so nothing can be seen inside of it. Pass the module that "
            "torch.compile was given; this one has it as model._orig_mod"
        )
    if any(is_lazy(t) for t in (*model.parameters(), *model.buffers())):
        raise ValueError("model: its parameters have no shape yet; call it on an input first")


def _check_rules(**given: Collection[str]) -> None:
    for argument, names in given.items():
        for name in names:
            if name not in RULES:
                raise ValueError(f"{argument}: got {name!r}; expected one of {', '.join(RULES)}")


def _under_autocast(model: nn.Module, example: Example, out: Examination) -> dict[str, ModuleCall]:
    other = (torch.float16, torch.bfloat16, torch.float64)
    if any(t.dtype in other for t in example.tensors().values()):
        return {}
    try:
        with preserve_buffers([model]):
            return trace_model(model, example, half=True).calls
    except ValueError as error:
        out.notes.append(f"not run under autocast: {error}")
        return {}


_CONVENTIONS = ("eps", "eps_placement", "divisor", "weight_offset", "weight_cast", "num_groups")


def _conform(run: ModelRun, out: Examination) -> list[Finding]:
    """Compare each kind of norm once with the formula that its conventions declare."""
    findings = []
    for norm, alike in rules.one_of_each(run.norms):
        found, record, layer = norm.fingerprint, norm.record, norm.layer
        usual = found.nearest_torch is not None or found.eps_placement != "inside"
        usual |= record.torch is None  # so that none of torch's layers comes nearest
        own = "threshold" if record.has_threshold else None  # a part of the norm
        after = found.followed_by not in (None, own) or found.modulated
        if not usual or after or found.eps is None:
            continue
        if isinstance(layer, OneTensor) and layer.has_others:
            continue
        if devices.process_count() > 1 and devices.is_shared(layer):
            out.notes.append(f"{norm.path}: normlab.parallel.check_parallel is what checks it")
            continue
        given = {name: getattr(found, name) for name in _CONVENTIONS}
        conventions = {name: value for name, value in given.items() if value is not None}
        try:
            with finite(layer) as clean:
                report = check_layer(
                    clean, like=str(found.family), shape=rules.probing_shape(norm), **conventions
                )
        except (ValueError, TypeError, RuntimeError) as error:
            out.notes.append(f"{norm.path} could not be checked: {error}")
            continue
        modules = tuple(n.path for n in alike)
        for failure in report.failures:
            # half precision matters where the model runs in it: the rule half_statistics
            if "float16" not in failure.check:
                message = f"{failure.check}: {failure.message}"
                findings.append(Finding("does_not_conform", modules, message))
    return findings
