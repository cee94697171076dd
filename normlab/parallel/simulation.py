"""What a mistake does to all processes of a group, each played in turn by one process."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from normlab.norms import NORMS
from normlab.parallel.changes import Shares, keep_own
from normlab.parallel.division import MOMENTUM, Division, scalar
from normlab.parallel.mistakes import ParallelMistake
from normlab.parallel.moments import Moments


class Simulated(NamedTuple):
    """What the processes have."""

    y: Tensor  #: output of all
    dx: Tensor  #: input gradient of all
    running: list[Tensor]  #: of each, running mean and variance; empty without such


def standardize(
    mistake: ParallelMistake, shares: Shares, axis: int, eps: float, centered: bool
) -> tuple[Shares, list[Moments]]:
    """Shares by statistics over an axis of all, and these statistics."""
    found = mistake.moments(shares, axis, mistake.sums, centered)
    pairs = zip(shares, found, strict=True)
    return [(x - f.mean) * torch.rsqrt(f.var + eps) for x, f in pairs], found


def standardize_heads(x: Tensor, axes: tuple[int, ...], eps: float, centered: bool) -> Tensor:
    """A process's (N, heads, T, head_dim) by its own statistics over some axes."""
    x = x - x.mean(axes, keepdim=True) if centered else x
    return x * torch.rsqrt(x.square().mean(axes, keepdim=True) + eps)


def simulate(mistake: ParallelMistake, whole: Division, eps: float) -> Simulated:
    """Run a norm with a mistake on every process's share of a whole."""
    centered, axis = NORMS[whole.like].centered, 0 if whole.over == "samples" else 1
    parts = [whole.share(rank) for rank in range(len(whole.shards))]
    shares = [part.x.clone().requires_grad_() for part in parts]
    found: list[Moments] = []
    if mistake.head_axes is not None:
        x_hats: Shares = [
            p.collect(standardize_heads(p.arrange(x), mistake.head_axes, eps, centered))
            for p, x in zip(parts, shares, strict=True)
        ]
    else:
        if whole.over in ("tokens", "heads"):  # each process has all of what it normalizes
            mistake = replace(mistake, sums=keep_own)
        x_hats, found = standardize(mistake, shares, axis, eps, centered)
    ys = [a * w for a, w in zip(x_hats, mistake.weights([p.weight for p in parts]), strict=True)]
    if whole.bias is not None:
        biases = mistake.weights([p.bias for p in parts if p.bias is not None])
        ys = [y + b for y, b in zip(ys, biases, strict=True)]
    loss = sum(scalar(y, p.dy) for y, p in zip(ys, parts, strict=True))
    assert isinstance(loss, Tensor)
    dx = torch.cat(torch.autograd.grad(loss, shares), whole.axis)
    running = []
    if NORMS[whole.like].has_running:
        for x, of_one in zip(shares, found, strict=True):
            recorded = mistake.record(x, of_one)
            after = MOMENTUM * recorded.mean[0], 1 + MOMENTUM * (recorded.var[0] - 1)
            running.append(torch.cat(after).detach())
    return Simulated(torch.cat(ys, whole.axis).detach(), dx, running)
