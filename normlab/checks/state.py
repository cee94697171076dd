"""What evaluation does, and what a module keeps when it is saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from normlab.checks.candidates import Diagnosis, forward_candidates
from normlab.checks.formula import Formula
from normlab.checks.inputs import BATCH, NEAR_EPS, Inputs, formula_for, make_inputs, observe
from normlab.checks.mistakes import MISTAKES
from normlab.checks.probing.modules import ForeignModule, ForeignNorm
from normlab.checks.probing.state import copy_module
from normlab.checks.report import Failure, Report, make_failure
from normlab.checks.running import close, running_case
from normlab.checks.tolerances import max_error
from normlab.norms import NORMS, Case


def check_evaluation(
    subject: ForeignNorm, formula: Formula, declared: Formula, report: Report
) -> None:
    """A norm with running statistics normalizes with them; another does the same as in training.

    Either `formula`, as the layer is in training, mistakes included, or `declared` is right.
    """
    if not subject.has_training:
        report.notes.append("evaluation: the function takes no training flag")
        return
    if not (subject.has_running or isinstance(subject, ForeignModule)):
        return
    report.checks.append("evaluation")
    found: list[Failure] = []
    first = running_case(subject)
    ranks = {len(c.shape): c for c in subject.cases} if subject.has_running else {}
    if not subject.scope.batch_of_one:
        ranks = {}
    alone = (dataclasses.replace(c, shape=(1, *c.shape[1:])) for c in ranks.values())
    for case in dict.fromkeys((first, *subject.cases[1:], *alone)):
        report.cases += 1
        try:
            found = _evaluate_case(subject, case, formula)
            if found and declared != formula and subject.has_running:
                again = _evaluate_case(subject, case, declared)
                found = again if len(again) < len(found) else found
            if not found and case == first and subject.has_running:
                found = _kept_from_before(subject)
        except Exception as error:  # the layer under test may fail in any way
            given = [("a " if getattr(case, k) else "no ") + k for k in ("weight", "bias")]
            text = (
                f"raises in evaluation mode, given {' and '.join(given)}: {type(error).__name__} "
                f"for an input of shape {case.shape}: {error}"
            )
            found = [Failure("evaluation", text, "evaluation_raises")]
        if found:
            break
    if any((f.mistake or "").startswith("no_d") for f in report.failures):  # cut in training, too
        found = [f for f in found if f.mistake != "eval_gradient"]
    report.failures += found


def _evaluate_case(subject: ForeignNorm, case: Case, formula: Formula) -> list[Failure]:
    if subject.has_running:
        return _with_running(subject, case, formula)
    assert isinstance(subject, ForeignModule)
    return _without_running(subject, case, formula)


def _without_running(subject: ForeignModule, case: Case, formula: Formula) -> list[Failure]:
    for scale in (BATCH, NEAR_EPS):
        t = make_inputs(case, scale, torch.float32, seed=50)
        training, evaluation = (observe(subject, t, training=mode) for mode in (True, False))
        for key in ("y", "dx", "dweight", "dbias"):
            right, got = getattr(training, key), getattr(evaluation, key)
            if right is None or (got is not None and close(got, right)):
                continue
            what = "the output" if key == "y" else f"the gradient {key}"
            text = f"{what} in evaluation differs from that in training"
            return [Failure("evaluation", text, "eval_differs")]
    parts = subject.module.modules()
    untracked = any(getattr(m, "track_running_stats", None) is False for m in parts)
    if NORMS[formula.like].over_batch and not untracked:
        text = (
            "evaluation normalizes with the statistics of the batch: the module keeps no running "
            "ones (and does not say track_running_stats=False)"
        )
        return [make_failure("evaluation", text, "eval_uses_batch")]
    return []


def _kept_from_before(subject: ForeignNorm) -> list[Failure]:
    """Evaluation, a step of training, evaluation again: the second takes the new numbers."""
    if not isinstance(subject, ForeignModule) or hasattr(subject.module, "_orig_mod"):
        return []  # of a compiled module only one copy is kept, so there is no fresh one
    t = make_inputs(running_case(subject), BATCH, torch.float32, seed=51)
    module = subject.prepare(torch.float32, t.weight, t.bias).eval()
    with torch.no_grad():
        module(t.x.clone())
        module.train()(t.x + 3.0)
        again = module.eval()(t.x.clone())
        fresh = subject.prepare(torch.float32, t.weight, t.bias, subject.running_of(module)).eval()
        expected = fresh(t.x.clone())
    if close(again, expected):
        return []
    return [make_failure("evaluation", MISTAKES["eval_stale"].says, "eval_stale")]


def _with_running(subject: ForeignNorm, case: Case, formula: Formula) -> list[Failure]:
    size = case.parameter_shape[0]
    for scale, means, variances in (
        (BATCH, (-1.0, 1.0), (0.5, 2.0)),
        (NEAR_EPS, (-5e-3, 5e-3), (1e-6, 1e-4)),
    ):
        t = make_inputs(case, scale, torch.float32, seed=50)
        running = torch.linspace(*means, size), torch.linspace(*variances, size)
        before = tuple(r.clone() for r in running)
        x = t.x.clone().requires_grad_()
        _, *parameters = t.leaves(torch.float32)
        y, leaves = subject(case, x, *parameters, training=False, running=running)
        shaped = formula_for(formula, case)
        changed = not all(torch.equal(a, b) for a, b in zip(before, running, strict=True))
        known = (before[0].double(), before[1].double())
        expected = _evaluate(shaped, t, known)
        after = _evaluate(shaped, t, (running[0].double(), running[1].double()))
        if changed and close(y.detach(), after):
            found = []  # right, but for the update that comes first
        elif not close(y.detach(), expected):
            found = [_name_evaluation(shaped, t, known, y.detach().double(), expected)]
        elif subject.scope.backward:
            found = _check_gradient([x, *leaves[:2]], y, t, shaped, known)
        else:
            found = []
        if changed:
            says = MISTAKES["eval_updates"].says
            found.append(Failure("evaluation", says, "eval_updates"))
        if found:
            return found
    return []


def _evaluate(formula: Formula, t: Inputs, running: tuple[Tensor, Tensor]) -> Tensor:
    x, weight, bias = t.to(torch.float64)
    return formula.evaluate(x, *running, weight, bias)


def _check_gradient(
    leaves: list[Tensor | None],
    y: Tensor,
    t: Inputs,
    formula: Formula,
    running: tuple[Tensor, Tensor],
) -> list[Failure]:
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
            return [Failure("evaluation", f"{text}constants: {error}", "eval_gradient")]
    return []


def _candidates(
    formula: Formula, t: Inputs, running: tuple[Tensor, Tensor]
) -> Iterator[tuple[str, str, Tensor]]:
    x, weight, bias = t.to(torch.float64)
    yield "eval_uses_batch", MISTAKES["eval_uses_batch"].says, formula(x, weight, bias)
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
            return make_failure("evaluation", sentence, name)
    return Failure("evaluation", f"the output is off by {max_error(got, expected):.1e}")


def _unregistered(module: nn.Module) -> list[str]:
    """Trainable tensors that `parameters()` does not find: plain attributes, or in a list."""
    found = []
    known = {id(p) for p in module.parameters()}
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if name.startswith("_") and isinstance(value, dict):
                continue  # the registers of torch itself
            inside = value.values() if isinstance(value, dict) else value
            several = inside if isinstance(value, list | tuple | dict) else [value]
            for v in several:
                if isinstance(v, Tensor) and v.requires_grad and v.is_leaf and id(v) not in known:
                    found.append(f"{prefix}.{name}" if prefix else name)
    return found


def check_saved_state(subject: ForeignNorm, report: Report) -> None:
    """A module that is saved and loaded evaluates, and goes on training, as before."""
    if not isinstance(subject, ForeignModule):
        return
    report.checks.append("saved state")
    hidden = _unregistered(subject.module)
    if hidden:
        text = (
            f"{', '.join(dict.fromkeys(hidden))}: trainable, but neither parameters() nor "
            "state_dict() has it, so it is neither trained nor saved"
        )
        report.failures.append(make_failure("saved state", text, "unregistered"))
        return
    if any(f.mistake == "evaluation_raises" for f in report.failures):
        report.notes.append("saved state, because evaluation raises")
        return
    report.cases += 1
    try:
        text = _lost(subject)
    except Exception as error:  # the layer under test may fail in any way
        text = f"raises after save and load: {type(error).__name__}: {error}"
    if text:
        report.failures.append(make_failure("saved state", text, "state_lost"))


def _lost(subject: ForeignModule) -> str:
    """What a module that is saved and loaded does otherwise; empty if nothing."""
    case = running_case(subject)
    trained = subject.with_dtype(torch.float32).train()
    fresh = copy_module(subject.module).float()
    with torch.no_grad():
        # a module may keep its weights in plain attributes: make them other than fresh ones
        for name in (subject.weight_name, subject.bias_name):
            if name is not None:
                subject.tensor(trained, name).add_(0.25)
        for seed in (60, 61, 62):
            trained(make_inputs(case, BATCH, torch.float32, seed=seed).x)
        try:
            fresh.load_state_dict(trained.state_dict())
        except Exception as error:  # a module may override it in any way
            return f"state_dict cannot be loaded: {type(error).__name__}: {error}"
        x = make_inputs(case, BATCH, torch.float32, seed=63).x
        if not torch.equal(trained.eval()(x.clone()), fresh.eval()(x.clone())):
            return (
                "after save and load the module evaluates differently: running statistics that "
                "are plain attributes, or not persistent, are lost"
            )
        for module in (trained.train(), fresh.train()):
            module(x.clone())  # a cumulative average also needs the number of its batches
        y = make_inputs(case, BATCH, torch.float32, seed=64).x
        if not torch.equal(trained.eval()(y.clone()), fresh.eval()(y.clone())):
            return "after save and load the running statistics go on differently: a count is lost"
    return ""
