"""What one process does for the check of a norm over several: its share, forward and backward."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from normlab.norms import NORMS
from normlab.parallel import cases
from normlab.parallel.cases import Case, Values, scalar

_EPS = 1e-3


class Answer(NamedTuple):
    """What one process found; a weight gradient is complete on each where `reduced` is set."""

    values: Values
    eps: float | None
    reduced: bool


def is_function(layer: Any) -> bool:
    """Whether it normalizes tensors itself, rather than making a module that does."""
    if inspect.isclass(layer) or isinstance(layer, nn.Module):
        return False
    return "weight" in inspect.signature(layer).parameters


def answer(layer: Any, case: Case, reduce: Callable[[nn.Module], Any]) -> Answer:
    """On one process: its share of a case, forward and backward."""
    share = case.share(dist.get_rank())
    record = NORMS[case.like]
    if is_function(layer):
        skipped = 1 if record.trailing else 0  # normalized_shape is the last axis

        def function(x: Tensor, *arguments: Any) -> Any:
            return layer(x, *arguments[skipped:])

        return Answer(cases.differentiate(function, share, _EPS), _EPS, False)
    module = _make(layer, share).to(share.x.dtype).train()
    for name, value in (("weight", share.weight), ("bias", share.bias)):
        if (p := getattr(module, name, None)) is not None and value is not None:
            with torch.no_grad():
                p.copy_(value.view_as(p))
            p.grad = None
    for norm in module.modules():
        if hasattr(norm, "reset_running_stats"):
            norm.reset_running_stats()
            norm.momentum = cases.MOMENTUM
    x = share.x.clone().requires_grad_()
    y = share.collect(module(share.arrange(x)))
    scalar(y, share.dy).backward()
    if case.axis == 0:
        reduce(module)
    found = (getattr(getattr(module, n, None), "grad", None) for n in ("weight", "bias"))
    gradients = (None if g is None else g.flatten() for g in found)
    names = ("running_mean", "running_var")
    running = (getattr(module, n, None) if record.has_running else None for n in names)
    values = Values(y.detach(), x.grad, *gradients, *running)  # type: ignore[arg-type]
    return Answer(values, getattr(module, "eps", record.eps), case.axis == 0)


def _make(layer: Any, share: Case) -> Any:
    if isinstance(layer, nn.Module):
        return layer
    if share.over == "all heads":
        return layer(cases.HEAD_DIM, share.heads)
    return layer(len(share.weight))


def evaluate(layer: Any, case: Case) -> Tensor | None:
    """On rank 0 alone, a batch norm in evaluation, which has to send nothing."""
    if dist.get_rank() != 0:
        return None
    share = case.share(0)
    if is_function(layer):
        mean, var = torch.zeros_like(share.weight), torch.ones_like(share.weight)
        y: Tensor = layer(share.x, mean, var, share.weight, share.bias, False, cases.MOMENTUM, _EPS)
        return y.detach()
    y = _make(layer, share).to(share.x.dtype).eval()(share.x)
    return y.detach()
