"""What evaluation does, and what a module keeps when it is saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from normlab.checks.diagnosis import Diagnosis, forward_candidates
from normlab.checks.formula import Formula
from normlab.checks.inputs import BATCH, NEAR_EPS, Inputs, make_inputs
from normlab.checks.mistakes import MISTAKES
from normlab.checks.probing.modules import ForeignModule
from normlab.checks.probing.state import copy_module, tensors_of, unregistered
from normlab.checks.report import Failure, Finding, Note, Ran, make_failure
from normlab.checks.reuse import fill_anew
from normlab.checks.tolerances import close, max_error
from normlab.checks.trial import Trial
from normlab.norms import Case

_CHECK = "evaluation"
_SAVED = "saved state"


def check_evaluation(trial: Trial, failures: Sequence[Failure]) -> Iterator[Finding]:
    """A norm with running statistics normalizes with them; another does the same as in training.

    Either the formula of the layer as it is in training, mistakes included, or the declared one is
    right.

    Args:
        trial: the layer.
        failures: a gradient that is missing in training is no news here.
    """
    layer = trial.layer
    if not layer.has_training:
        yield Note(f"{_CHECK}: the function takes no training flag")
        return
    if not (layer.has_running or isinstance(layer, ForeignModule)):
        return
    yield Ran(_CHECK, 0)
    first = trial.small_case
    by_rank = {len(c.shape): c for c in trial.cases}
    ranks = by_rank.values() if layer.has_running and trial.scope.batch_of_one else ()
    alone = (dataclasses.replace(c, shape=(1, *c.shape[1:])) for c in ranks)
    found: list[Failure] = []
    for case in dict.fromkeys((first, *trial.cases[1:], *alone)):
        yield Ran(_CHECK)
        try:
            found = _evaluate_case(trial, case, first)
        except Exception as error:  # the layer under test may fail in any way
            given = [("a " if getattr(case, k) else "no ") + k for k in ("weight", "bias")]
            text = (
                f"raises in evaluation mode, given {' and '.join(given)}: {type(error).__name__} "
                f"for an input of shape {case.shape}: {error}"
            )
            found = [Failure(_CHECK, text, "evaluation_raises")]
        if found:
            break
    cut = any((f.mistake or "").startswith("no_d") for f in failures)
    yield from (f for f in found if not (cut and f.mistake == "eval_gradient"))


def _evaluate_case(trial: Trial, case: Case, first: Case) -> list[Failure]:
    if not trial.layer.has_running:
        found = list(_without_running(trial, case))
    else:
        found = list(_with_running(trial, case, trial.actual))
        if found and trial.declared != trial.actual:
            found = min(found, list(_with_running(trial, case, trial.declared)), key=len)
    if not found and case == first:
        found = list(_kept_from_before(trial))
    return found


def _without_running(trial: Trial, case: Case) -> Iterator[Failure]:
    for scale in (BATCH, NEAR_EPS):
        t = make_inputs(case, scale, seed=50)
        training, evaluation = (trial.observe(t, training=mode) for mode in (True, False))
        for key, right in training.items():
            if key in evaluation and close(evaluation[key], right):
                continue
            what = "the output" if key == "y" else f"the gradient {key}"
            yield Failure(
                _CHECK, f"{what} in evaluation differs from that in training", "eval_differs"
            )
            return
    assert isinstance(trial.layer, ForeignModule)
    parts = trial.layer.module.modules()
    untracked = any(getattr(m, "track_running_stats", None) is False for m in parts)
    if trial.norm.over_batch and trial.scope.tracked and not untracked:
        text = (
            "evaluation normalizes with the statistics of the batch: the module keeps no running "
            "ones. If that is meant, as in torch without running statistics, "
            "pass track_running_stats=False"
        )
        yield make_failure(_CHECK, text, "eval_uses_batch")


def _kept_from_before(trial: Trial) -> Iterator[Failure]:
    """Evaluation, a step of training, evaluation again: the second takes the new numbers.

    The step moves statistics and parameters.
    """
    layer = trial.layer
    if not isinstance(layer, ForeignModule) or layer.compiled:
        return  # of a compiled module only one copy is kept, so there is no fresh one
    t = make_inputs(trial.small_case, BATCH, seed=51)
    module = layer.prepare(torch.float32, t.weight, t.bias).eval()
    with torch.no_grad():
        module(t.x.clone())
        module.train()(t.x + 3.0)
        for name in filter(None, (layer.weight_name, layer.bias_name)):
            layer.tensor(module, name).add_(0.5)
        again = module.eval()(t.x.clone()).clone()
        fresh = layer.twin(module).eval()
        expected = fresh(t.x.clone()).clone()
        other = make_inputs(trial.small_case, BATCH, seed=52).x
        text = fill_anew(fresh, t.x, other, layer.twin(module).eval()(other.clone()))
    if not close(again, expected):
        yield make_failure(_CHECK, MISTAKES["eval_stale"].message, "eval_stale")
    elif text:
        yield make_failure(_CHECK, text, "used_again")


def _with_running(trial: Trial, case: Case, formula: Formula) -> Iterator[Failure]:
    size, shaped = case.parameter_shape[0], formula.at(case)
    for scale, means, variances in (
        (BATCH, (-1.0, 1.0), (0.5, 2.0)),
        (NEAR_EPS, (-5e-3, 5e-3), (1e-6, 1e-4)),
    ):
        t = make_inputs(case, scale, seed=50)
        running = torch.linspace(*means, size), torch.linspace(*variances, size)
        known = running[0].double(), running[1].double()
        x = t.x.clone().requires_grad_()
        _, *parameters = t.leaves(torch.float32)
        y, leaves = trial.layer(case, x, *parameters, training=False, running=running)
        now = running[0].double(), running[1].double()
        changed = not all(torch.equal(a, b) for a, b in zip(known, now, strict=True))
        expected = _evaluate(shaped, t, known)
        failure = None
        if changed and close(y.detach(), _evaluate(shaped, t, now)):
            pass  # right, but for the update that comes first
        elif not close(y.detach(), expected):
            failure = _name_evaluation(shaped, t, known, y.detach().double(), expected)
        elif trial.scope.backward:
            failure = _check_gradient([x, *leaves[:2]], y, t, shaped, known)
        if failure is not None:
            yield failure
        if changed:
            yield Failure(_CHECK, MISTAKES["eval_updates"].message, "eval_updates")
        if changed or failure is not None:
            return


def _evaluate(formula: Formula, t: Inputs, running: tuple[Tensor, Tensor]) -> Tensor:
    x, weight, bias = t.to(torch.float64).given
    return formula.evaluate(x, *running, weight, bias)


def _check_gradient(
    leaves: list[Tensor | None],
    y: Tensor,
    t: Inputs,
    formula: Formula,
    running: tuple[Tensor, Tensor],
) -> Failure | None:
    """In evaluation the statistics are constants, so the gradient is a product."""
    wide = t.leaves(torch.float64)
    expected = formula.evaluate(wide[0], *running, *wide[1:])
    for what, leaf, right in zip(("input", "weight", "bias"), leaves, wide, strict=True):
        if leaf is None or right is None:
            continue
        (want,) = torch.autograd.grad(expected, right, t.dy.double(), retain_graph=True)
        got = None
        if y.requires_grad:
            (got,) = torch.autograd.grad(y, leaf, t.dy, retain_graph=True, allow_unused=True)
        if got is None or not close(got.reshape(want.shape), want):
            error = "missing" if got is None else f"off by {max_error(got, want):.1e}"
            text = f"the gradient by the {what} is wrong in evaluation, where the statistics are "
            return Failure(_CHECK, f"{text}constants: {error}", "eval_gradient")
    return None


def _candidates(
    formula: Formula, t: Inputs, running: tuple[Tensor, Tensor]
) -> Iterator[tuple[str, str, Tensor]]:
    x, weight, bias = t.to(torch.float64).given
    yield "eval_uses_batch", MISTAKES["eval_uses_batch"].message, formula(x, weight, bias)
    mean, var, count = formula.statistics(x)
    by_channel = mean.flatten(), var.flatten()
    if len(by_channel[0]) == len(running[0]):
        text = "evaluation takes the {} of the batch, not the running one"
        mixed = (by_channel[0], running[1]), (running[0], by_channel[1])
        for what, pair in zip(("mean", "variance"), mixed, strict=True):
            yield "eval_uses_batch", text.format(what), _evaluate(formula, t, pair)
    missing = Diagnosis("other_eps", "eps is missing", {"eps": 0.0})
    for candidate in (*forward_candidates(formula), missing):
        value = _evaluate(formula.replace(**(candidate.changes or {})), t, running)
        yield str(candidate.mistake), f"in evaluation {candidate.sentence}", value
    factor = count / (count - 1) if count > 1 else 1.0
    for name, text, scale in (
        ("eval_bessel", "Bessel's correction is applied again to the running variance", factor),
        ("eval_bessel", "Bessel's correction is taken out of the running variance", 1 / factor),
    ):
        yield name, f"in evaluation {text}", _evaluate(formula, t, (running[0], running[1] * scale))
    text = "in evaluation the running variance is taken for a standard deviation"
    yield "running_std", text, _evaluate(formula, t, (running[0], running[1].square()))


def _name_evaluation(
    formula: Formula, t: Inputs, running: tuple[Tensor, Tensor], got: Tensor, expected: Tensor
) -> Failure:
    for name, sentence, value in _candidates(formula, t, running):
        if got.shape == value.shape and close(got, value):
            return make_failure(_CHECK, sentence, name)
    return Failure(_CHECK, f"the output is off by {max_error(got, expected):.1e}")


def check_saved_state(trial: Trial, failures: Sequence[Failure]) -> Iterator[Finding]:
    """A module that is saved and loaded evaluates, and goes on training, as before.

    Args:
        trial: the layer.
        failures: evaluation has to work.
    """
    if not isinstance(trial.layer, ForeignModule):
        return
    yield Ran(_SAVED, 0)
    hidden = unregistered(trial.layer.module)
    if hidden:
        text = (
            f"{', '.join(dict.fromkeys(hidden))}: trainable, but neither parameters() nor "
            "state_dict() has it, so it is neither trained nor saved"
        )
        yield make_failure(_SAVED, text, "unregistered")
        return
    if any(f.mistake == "evaluation_raises" for f in failures):
        yield Note("saved state, because evaluation raises")
        return
    yield Ran(_SAVED)
    odd = _shaped_unlike_torch(trial.layer)
    if odd:
        yield make_failure(_SAVED, odd, "running_shape")
        return
    frozen = trial.declared.fixed is not None
    if trial.norm.over_batch and not frozen and not _counts_batches(trial.layer, trial.small_case):
        yield make_failure(_SAVED, MISTAKES["not_counted"].message, "not_counted")
        return
    try:
        mistake, text = _lost(trial.layer, trial.small_case)
    except Exception as error:  # the layer under test may fail in any way
        mistake, text = "state_lost", f"raises after save and load: {type(error).__name__}: {error}"
    if text:
        yield make_failure(_SAVED, text, mistake)


def _shaped_unlike_torch(layer: ForeignModule) -> str:
    """Statistics under torch's names, in a shape that torch's layer, which has one axis, refuses.

    Where the weight has more axes, too, the layer does not pass for torch's.
    """
    if layer.weight_name and layer.tensor(layer.module, layer.weight_name).dim() > 1:
        return ""
    for name in filter(None, (layer.mean_name, layer.var_name)):
        tensor = layer.tensor(layer.module, name)
        if name.rpartition(".")[2] in ("running_mean", "running_var") and tensor.dim() != 1:
            given, flat = (*tensor.shape,), (tensor.numel(),)
            return f"{name} has shape {given}; torch's, which cannot load it, has {flat}"
    return ""


def _counts_batches(layer: ForeignModule, case: Case) -> bool:
    """Whether the number of batches, which torch's state_dict has, moves if there is one."""
    module = layer.with_dtype(torch.float32).train()
    counts = {n: b for n, b in module.named_buffers() if n.endswith("num_batches_tracked")}
    before = {name: int(count) for name, count in counts.items()}
    with torch.no_grad():
        module(make_inputs(case, BATCH, seed=64).x)
    now = {n: int(b) for n, b in module.named_buffers() if n in before}
    return not before or now != before


def _lost(layer: ForeignModule, case: Case) -> tuple[str, str]:
    """What a module that is saved and loaded does otherwise, and its mistake; empty if nothing."""
    trained = layer.with_dtype(torch.float32).train()
    fresh, used = (copy_module(layer.module).float() for _ in range(2))
    with torch.no_grad():
        # a module may keep its weights in plain attributes: make them other than fresh ones
        for name in (layer.weight_name, layer.bias_name, layer.mean_name, layer.var_name):
            if name is not None:
                layer.tensor(trained, name).add_(0.25)
        for seed in (60, 61, 62):
            trained(make_inputs(case, BATCH, seed=seed).x)
        x = make_inputs(case, BATCH, seed=63).x
        used.eval()(x.clone())
        first = tensors_of(copy_module(fresh))
        try:
            for module in (fresh, used):
                module.load_state_dict(trained.state_dict())
        except Exception as error:  # a module may override it in any way
            return "state_lost", f"state_dict cannot be loaded: {type(error).__name__}: {error}"
        after = trained.eval()(x.clone()), fresh.eval()(x.clone())
        if not torch.equal(*after):
            expected = layer.twin(trained).eval()(x)
            mistake, text = _why_lost(trained, fresh, first, [close(y, expected) for y in after])
            return mistake, f"after save and load the module evaluates differently: {text}"
        if not torch.equal(used(x.clone()), after[1]):
            text = "a module that has evaluated before uses what it kept from before loading"
            return "eval_stale", text
        for module in (trained.train(), fresh.train()):
            module(x.clone())  # a cumulative average also needs the number of its batches
        y = make_inputs(case, BATCH, seed=64).x
        if not torch.equal(trained.eval()(y.clone()), fresh.eval()(y.clone())):
            text = "after save and load the running statistics go on differently: a count is lost"
            return "state_lost", text
    return "", ""


def _why_lost(
    trained: nn.Module, fresh: nn.Module, first: Mapping[str, Tensor], right: Sequence[bool]
) -> tuple[str, str]:
    """Which tensor is another; `right`: whether each gives what a copy with its tensors does."""
    held, loaded, saved = tensors_of(trained), tensors_of(fresh), trained.state_dict()
    for name in (n for n, t in held.items() if n in saved and not torch.equal(loaded[n], t)):
        if not torch.equal(saved[name], held[name]):
            return "state_lost", f"state_dict saves another {name}"
        if torch.equal(loaded[name], first[name]):
            return "state_lost", f"load_state_dict leaves {name} as it is"
        moved = (loaded[name] - held[name]).double()
        one = float(moved.mean())
        by = f"adds {one:.3g} to" if close(moved, torch.full_like(moved, one)) else "changes"
        return "load_changes", f"load_state_dict {by} {name}"
    same = all(torch.equal(loaded[n], t) for n, t in held.items() if n in loaded)
    when = "loading" if right[0] else "a step"
    if any(right) and (same or not right[0]):
        return "eval_stale", f"it uses what it kept from before {when}"
    text = "running statistics that are plain attributes, or not persistent, are lost"
    return "state_lost", text
