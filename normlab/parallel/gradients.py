"""Gradients of norms that each process has only a part of: which they are, and their sum."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from normlab.parallel.collectives import Group, gather_from_group, group_size


def reduce_norm_gradients(model: nn.Module, group: Group = None) -> tuple[str, ...]:
    """Sum the gradients of a model's norms over a group, between `backward` and the step.

    Where processes have other tokens or other heads, each has a copy of a norm's weight and a
    gradient from its own tokens. The gradient of the copy is the sum; without it the copies
    drift apart. All gradients travel together, in one all-reduce, and are summed in float32 or
    wider. A parameter without a gradient on some processes counts as zero there, and stays
    without one if no process has any.

    Args:
        model: its norms are the modules with `Norm` in the name of their class; those that sum
            by themselves have a true `gradients_are_complete`.
        group: the processes that share the sequence or the heads, not those that have other
            batches; None for all.

    Returns:
        Names of the parameters whose gradients were summed.

    Raises:
        RuntimeError: a gradient was summed already and has not changed since.
        TypeError: a gradient is a DTensor, which knows by itself what is partial.

    Conventions:
        summed, not averaged. A norm whose weight is divided among the processes has its whole
        gradient already and needs `gradients_are_complete = True`.

    Source:
        korthikanti2023reducing; shoeybi2019megatron.
    """
    if group_size(group) == 1:
        return ()
    found = dict(_norm_parameters(model))
    for name, p in found.items():
        _check_gradient(name, p.grad)
    wide = torch.float64 if any(p.dtype == torch.float64 for p in found.values()) else torch.float32
    parts = [
        torch.zeros_like(p, dtype=wide) if p.grad is None else p.grad.to(wide)
        for p in found.values()
    ]
    if not parts:
        return ()
    present = parts[0].new_tensor([p.grad is not None for p in found.values()])
    total = torch.cat([present, *(part.flatten() for part in parts)])
    dist.all_reduce(total, group=group)
    present, *summed = total.split([len(parts), *(part.numel() for part in parts)])
    reduced = []
    for (name, p), there, value in zip(found.items(), present.tolist(), summed, strict=True):
        if there:
            if p.grad is None:
                p.grad = torch.empty_like(p)
            p.grad.copy_(value.view_as(p))
            p.grad.summed_at_version = p.grad._version  # type: ignore[attr-defined]
            reduced.append(name)
    return tuple(reduced)


def find_partial_gradients(model: nn.Module, group: Group = None) -> tuple[str, ...]:
    """Parameters that are equal on all processes while their gradients are not: after `backward`.

    They differ by more than rounding, so they are parts of one, and a step with them makes the
    copies differ. A parameter that is divided among the processes has other values on each and is
    not listed; but fresh weights of norms are all 1, divided or not, so ask after a step.

    Returns:
        Names, in the order of the model, equal on all processes.

    Warns:
        UserWarning: it cannot be told, because a listed parameter has one value in all entries,
            or because a gradient is zero on all processes, as behind a branch that starts at zero.

    Example:
        >>> norm = nn.LayerNorm(3)
        >>> norm(torch.randn(2, 3)).square().sum().backward()
        >>> find_partial_gradients(norm)  # one process has everything
        ()
    """
    if group_size(group) == 1:
        return ()
    parameters = dict(model.named_parameters())
    mine = {n: (tuple(p.shape), p.grad is not None) for n, p in parameters.items()}
    everyone: list[Any] = [None] * group_size(group)
    dist.all_gather_object(everyone, mine, group=group)
    found, silent = [], []
    for name, p in parameters.items():
        seen = {other.get(name) for other in everyone}
        if seen != {(tuple(p.shape), True)}:
            if any(one is not None and one[1] for one in seen) and _same_shape(seen):
                found.append(name)  # some have a gradient, and others none
            continue
        assert p.grad is not None
        values, gradients = gather_from_group(torch.stack([p.detach(), p.grad]), group).unbind(1)
        if not p.numel() or not bool((values == values[0]).all()):
            continue
        rounding = torch.finfo(p.dtype).eps ** 0.5 * gradients.abs().max()
        if not bool(((gradients - gradients[0]).abs() <= rounding).all()):
            found.append(name)
        elif not bool(gradients.any()):
            silent.append(name)
    flat = [n for n in found if bool((parameters[n] == parameters[n].flatten()[:1]).all())]
    for names, seen_in in (
        (flat, "all entries are equal, as at the start, even where a parameter is divided"),
        (silent, "the gradient is zero on all processes"),
    ):
        if names:
            shown = ", ".join(names[:4]) + ", …" * (len(names) > 4)
            text = f"{shown}: {seen_in}, which does not tell; call again after a step"
            warnings.warn(text, stacklevel=2)
    return tuple(found)


def _same_shape(seen: set[Any]) -> bool:
    return None not in seen and len({one[0] for one in seen}) == 1


def _norm_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for path, module in model.named_modules():
        if "Norm" in type(module).__name__ and not getattr(module, "gradients_are_complete", False):
            for name, p in module.named_parameters(recurse=False):
                if p.requires_grad:
                    yield f"{path}.{name}" if path else name, p


def _check_gradient(name: str, grad: Tensor | None) -> None:
    if hasattr(grad, "placements"):
        raise TypeError(
            f"{name}: its gradient is a DTensor, {grad!r}; expected a plain tensor. The optimizer "
            "reduces a DTensor by itself; leave this parameter out"
        )
    if grad is not None and getattr(grad, "summed_at_version", None) == grad._version:
        raise RuntimeError(
            f"{name}: its gradient was summed over the group already and has not changed since; "
            "expected one call between backward and the step. Summed twice, it would be "
            "multiplied by the number of processes"
        )
