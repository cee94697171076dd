"""Graders of the exercises on debugging; each returns a sentence that names the mistake."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from normlab.book.exercises.grading import UNANSWERED, Answer, Grading, Question, grader


@grader
def check_diagnosis(answer: Answer) -> Grading:
    """Grade `answer(model, x, y)`: "mode", "buffers", "weights" or "nothing" is wrong.

    The models are a batch norm and a linear layer. Looking must leave a model as it was.
    """
    x, y = _two_clusters()

    def look(model: nn.Module, x: Tensor, y: Tensor) -> Any:
        before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
        found = answer(model, x, y)
        if modes != [m.training for m in model.modules()]:
            return "left in another mode"
        pairs = zip(before.values(), model.state_dict().values(), strict=True)
        same = all(torch.equal(old.nan_to_num(), new.nan_to_num()) for old, new in pairs)
        return found if same else "moved"

    def case(model: nn.Module, right: str, mistakes: dict[str, str]) -> Question:
        changed = {
            "the look moved the running statistics: look at a copy of the model": "moved",
            "the model was left in another mode than it came in": "left in another mode",
        }
        hint = f"that is not it; this model's fault is in another place ({right})"
        return Question((model, x, y), right, mistakes | changed, hint, through=look)

    missed = "the accuracy in evaluation is no better than guessing, and you found nothing"
    own = "with the statistics of the batch it is right, so the weights are fine"
    also = "with the statistics of the batch it is as bad, so the buffers are not to blame"
    mode = "it is in training mode, and right as soon as it is not: look at the mode first"
    nan = "NaN in the buffers is no fault of the weights, which are right on a batch"
    fine = "this one is in evaluation mode and right: nothing is wrong with it"
    yield case(_classifier(x), "nothing", {fine: "buffers"})
    yield case(_classifier(None), "buffers", {missed: "nothing", own: "weights"})
    yield case(_classifier(x, flip=True), "weights", {also: "buffers", missed: "nothing"})
    yield case(_classifier(x).train(), "mode", {mode: "nothing"})
    yield case(_classifier(x * torch.nan), "buffers", {nan: "weights", missed: "nothing"})


def _two_clusters() -> tuple[Tensor, Tensor]:
    y = torch.arange(40) % 2
    noise = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    return 8.0 + torch.stack([4.0 * y, torch.zeros(40)], 1) + 0.5 * noise, y


def _classifier(seen: Tensor | None, *, flip: bool = False) -> nn.Module:
    """Right about the clusters if the statistics are those of `seen`, and unless `flip`."""
    norm, last = nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        last.weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]) * (-1.0 if flip else 1.0))
        if seen is not None:
            norm.running_mean = seen.mean(0)
            norm.running_var = (seen - seen.mean(0)).square().mean(0)
    return nn.Sequential(norm, last).eval()


class _FineTuned(nn.Sequential):
    def __init__(self) -> None:
        backbone = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
        super().__init__(backbone, nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 2)))


@grader
def check_start_epoch(answer: Answer) -> Grading:
    """Grade `answer(model, backbone) -> model`, which a loop calls instead of `model.train()`.

    Two epochs are run, with a validation in `model.eval()` between them.
    """

    def epochs(model: nn.Sequential) -> str:
        return _fine_tune(answer, copy.deepcopy(model))

    mistakes = {
        "the weights of the backbone moved: eval() does not stop the optimizer": "parameters",
        "the running statistics of the backbone moved: requires_grad=False does not stop them. "
        "Call eval() on the backbone, after train() on the model": "statistics",
        "the backbone is trained with the rest; it takes requires_grad_(False) and eval()": "both",
        "nothing moves, but the backbone normalizes by the batch: its features are not those "
        "of evaluation": "batch",
        "the head is in evaluation mode, so its dropout is off: only the backbone stays there": (
            "head in eval"
        ),
        "the head does not learn: only the backbone is to be frozen": "head frozen",
        "it sets the modes, but returns None: return the model": "not returned",
    }
    torch.manual_seed(0)
    model = _FineTuned()
    yield UNANSWERED if epochs(model) == "untouched" else ""
    yield Question((model,), "only the head learns", mistakes, through=epochs)


def _modes(model: nn.Module) -> tuple[list[bool], list[bool]]:
    """What the start of an epoch may change."""
    return [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]


def _fine_tune(start_epoch: Answer, model: nn.Sequential) -> str:
    """What two epochs of fine-tuning did, in a word."""
    backbone, head = model[0], model[1]
    before = copy.deepcopy(model)
    x = 2.0 + torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    right = copy.deepcopy(backbone).eval()(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    heads = True
    for _ in range(2):
        untouched = _modes(model)
        if start_epoch.run(model, backbone) is None:
            return "untouched" if _modes(model) == untouched else "not returned"
        by_batch = not torch.allclose(copy.deepcopy(backbone)(x), right, atol=1e-5)
        heads = heads and all(m.training for m in head.modules())
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            if not loss.requires_grad:
                return "head frozen"
            loss.backward()
            optimizer.step()
        model.eval()
    moved = {
        kind
        for kind, old, new in (
            ("parameters", before[0].parameters(), backbone.parameters()),
            ("statistics", before[0].buffers(), backbone.buffers()),
            ("head", before[1].parameters(), head.parameters()),
        )
        if any(not torch.equal(a, b) for a, b in zip(old, new, strict=True))
    }
    if of_backbone := moved - {"head"}:
        return "both" if len(of_backbone) == 2 else of_backbone.pop()
    if "head" not in moved:
        return "head frozen"
    if by_batch:
        return "batch"
    return "only the head learns" if heads else "head in eval"


@grader
def check_decay_groups(answer: Answer) -> Grading:
    """Grade `answer(model, decay)`: groups for AdamW without decay on norms and biases."""
    decay = 0.3

    def divide(model: nn.Module, decay: float) -> str:
        return _describe(answer(model, decay), model, decay)

    several, rms = (
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.LayerNorm([4, 6, 6]), nn.Flatten(), nn.Linear(144, 3)),
        nn.Sequential(nn.Linear(6, 5), nn.RMSNorm(5), nn.Linear(5, 2)),
    )
    mistakes = {
        "the weight of a layer norm over several axes has several axes: ask for the "
        "module, not for the number of axes": "0.weight, 1.bias, 1.weight, 3.weight",
        "the weight of the norm decays; in a Sequential no name says that it is one": (
            "0.weight, 1.weight, 3.weight"
        ),
        "everything decays": "0.bias, 0.weight, 1.bias, 1.weight, 3.bias, 3.weight",
        "biases are not to decay either": "0.bias, 0.weight, 3.bias, 3.weight",
        "the groups are exchanged: norms and biases decay, matrices do not": (
            "0.bias, 1.bias, 1.weight, 3.bias"
        ),
        "nothing decays": "",
        "some parameters are in no group, so that the optimizer never moves them": "missing",
        "some parameters are in two groups; each belongs to one": "twice",
        "a group that names no weight_decay gets AdamW's own, 0.01": "default",
        "the decay of a group is neither the one given nor 0": "other",
    }
    hint = "other parameters decay than the weights of convolution and linear layer"
    yield Question((several, decay), "0.weight, 3.weight", mistakes, hint, through=divide)
    mistakes = {"an RMS norm is a norm, too": "0.weight, 1.weight, 2.weight"}
    hint = "other parameters decay than the weights of the two linear layers"
    yield Question((rms, decay), "0.weight, 2.weight", mistakes, hint, through=divide)


def _of_group(group: dict[str, Any]) -> list[Tensor]:
    """The parameters of a group: one, several, or several with their names."""
    params = group["params"]
    several = [params] if isinstance(params, Tensor) else list(params)
    return [p[1] if isinstance(p, tuple) else p for p in several]


def _describe(groups: Any, model: nn.Module, decay: float) -> str:
    """Names of the parameters that decay, or what is wrong with the groups."""
    names = {id(p): name for name, p in model.named_parameters()}
    listed = [(id(p), g.get("weight_decay")) for g in map(dict, groups) for p in _of_group(g)]
    if len(listed) > len({key for key, _ in listed}):
        return "twice"
    if {key for key, _ in listed} != set(names):
        return "missing"
    if any(value is None for _, value in listed):
        return "default"
    if any(value not in (0, decay) for _, value in listed):
        return "other"
    return ", ".join(sorted(names[key] for key, value in listed if value))
