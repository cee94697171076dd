"""Walk a model, identify and check its norms, and apply the rules."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from normlab.checks.inspection.catalogue import RULES
from normlab.checks.inspection.devices import without_data_parallel
from normlab.checks.inspection.memory import watch_memory
from normlab.checks.inspection.model_run import ModelRun
from normlab.checks.inspection.recognition import recognize
from normlab.checks.inspection.report import Examination, Finding, grouped
from normlab.checks.inspection.state import read_state
from normlab.checks.inspection.tracing import Example, run_once, trace_model
from normlab.checks.probing import preserve_state, uncompiled
from normlab.checks.probing.state import check_has_forward, check_is_ready, copy_module, tensors_of


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

    What looks like a norm, by the name of its class or attribute, by what it does, or because it
    divides by a statistic of its own input, and could not be named is listed as `unknown`: nothing
    is said about it, so a report with unknown norms is no all-clear. Norms of weights, and what is
    named like a norm and takes no statistics, are listed apart.

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
        select: rules to apply; all, where none is given. Where none of them is about norms
            (`not_finite`, `negative_variance`), none is identified.
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
    wanted = {
        name: rule
        for name, rule in RULES.items()
        if (not select or name in select) and name not in ignore
    }
    given, model = model, without_data_parallel(model)
    example, notes = Example.of(example_input), list[str]()
    _check_has_shapes(model, example)
    peak = watch_memory()
    with preserve_state([model]), uncompiled():
        state = read_state(model)
        notes += state.notes
        trace = trace_model(model, example, notes=notes)
        modules = dict(model.named_modules())
        run = ModelRun(given, model, example, optimizer, state, trace, modules, notes=notes)
        if any(rule.needs_norms for rule in wanted.values()) or not select:
            recognize(run, progress)
        else:
            notes.append("no norm was identified, because the selected rules need none")
        findings = [
            Finding(name, rule.severity, modules, message, rule.page)
            for name, rule in wanted.items()
            for modules, message in rule.find(run)
        ]
    return Examination(
        findings=grouped(findings),
        norms=run.reports,
        unknown=list(run.unknown),
        reasons=run.unknown,
        notes=notes,
        no_statistics=run.no_statistics,
        frozen=run.frozen,
        of_weights=list(dict.fromkeys(run.of_weights)),
        peak_memory=peak(),
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
    check_has_forward("model", model)


def _check_has_shapes(model: nn.Module, example: Example) -> None:
    """Refuse a model that its first call would give shapes; what it never calls may have none."""
    lazy = [name for name, t in tensors_of(model).items() if is_lazy(t)]
    if not lazy:
        return
    with torch.random.fork_rng(), contextlib.suppress(Exception):  # it may raise; said below
        called = copy_module(model)
        run_once(called, example)
        if all(is_lazy(tensors_of(called)[name]) for name in lazy):
            return
    check_is_ready("model", model)


def _check_rules(**given: Collection[str]) -> None:
    for argument, names in given.items():
        for name in names:
            if name not in RULES:
                near = difflib.get_close_matches(name, RULES, 1)
                hint = f". Did you mean {near[0]}?" if near else ""
                known = ", ".join(RULES)
                raise ValueError(f"{argument}: got {name!r}; expected one of {known}{hint}")
