"""What else gets a Post-LN network off the plateau, and what comes too late?"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal, get_args

import torch
from pydantic import PositiveInt
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from normlab import schedules
from normlab.book.experiments.sequence_training import (
    make_optimizer,
    reversal_network,
    sequence_loss,
    train_on_sequences,
)
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import check_warmup

Remedy = Literal[
    "nothing",
    "warmup",
    "small rate",
    "clipping",
    "second moment first",
    "RAdam",
    "1 full step first",
    "3 full steps first",
    "10 full steps first",
]
FULL_STEPS = {"1 full step first": 1, "3 full steps first": 3, "10 full steps first": 10}
LR = 1e-2  # peak, of Adam


def delayed_warmup(optimizer: Optimizer, *, full_steps: int, warmup_steps: int) -> LambdaLR:
    """A warmup that comes too late: full steps, and only then linear from near zero."""

    def factor(updates_done: int) -> float:
        t = updates_done + 1 - full_steps
        return min(1.0, t / warmup_steps) if t > 0 else 1.0

    return LambdaLR(optimizer, factor)


def radam_shares(steps: int, *, beta2: float = 0.98) -> list[float]:
    """Step of RAdam over the step of Adam at each update, on a small constant gradient.

    Measured on torch's optimizers. Both divide by the same root of the second moment; what
    RAdam adds is a factor that grows from near zero to one: a warmup of its own.

    Args:
        beta2: of both; the factor grows over about 2 / (1 - beta2) updates.

    Source:
        liu2020variance; ma2021adequacy.
    """
    moved = []
    for kind in (torch.optim.RAdam, torch.optim.Adam):
        w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        optimizer = kind([w], lr=1.0, betas=(0.9, beta2), eps=1e-12)
        places = [0.0]
        for _ in range(steps):
            w.grad = torch.full_like(w, 1e-3)
            optimizer.step()
            places.append(w.item())
        moved.append([b - a for a, b in pairwise(places)])
    return [ours / adams for ours, adams in zip(*moved, strict=True)]


def filled_first_step(seed: int, *, batches: int = 100) -> float:
    """Size of Adam's first step after its averages have seen batches at rate 0.

    Returns:
        Root mean square over all weights, in units of the rate; 1 with empty averages.
    """
    model, drawn = reversal_network("post_norm", seed=seed)
    optimizer = make_optimizer(model, lr=1.0)
    before = torch.cat([p.detach().flatten().double() for p in model.parameters()])
    for i in range(batches + 1):
        for group in optimizer.param_groups:
            group["lr"] = float(i == batches)
        optimizer.zero_grad()
        sequence_loss(model, next(drawn))[0].backward()
        optimizer.step()
    after = torch.cat([p.detach().flatten().double() for p in model.parameters()])
    return (after - before).square().mean().sqrt().item()


def _schedule(remedy: Remedy, optimizer: Optimizer, warmup: int) -> LRScheduler | None:
    if remedy == "warmup":
        return schedules.constant(optimizer, warmup_steps=warmup)
    if remedy == "second moment first":
        return LambdaLR(optimizer, lambda updates_done: float(updates_done >= warmup))
    if remedy in FULL_STEPS:
        return delayed_warmup(optimizer, full_steps=FULL_STEPS[remedy], warmup_steps=warmup)
    return None


@experiment(remedy=get_args(Remedy), seed=range(5), condition=check_warmup)
def warmup_remedies(
    remedy: Remedy,
    seed: Seed,
    *,
    warmup: PositiveInt = 100,
    layers: PositiveInt = 6,
    steps: Steps = 300,
) -> dict[str, float]:
    """Train a Post-LN Transformer on reversal by Adam, at a peak rate of 0.01.

    Args:
        remedy: "nothing"; "warmup"; "small rate" (a tenth, throughout); "clipping" (of the gradient
            of all parameters to norm 1); "second moment first" (as many batches as the warmup has,
            at rate 0, so that Adam's averages settle; then the full rate); "RAdam"; "1 full step
            first" and the like (full steps, then the warmup).

    Returns:
        final_loss: mean of the last 20 updates.
        accuracy: mean of the last 20 updates; chance is 0.1.
    """
    model, batches = reversal_network("post_norm", layers=layers, seed=seed)
    optimizer = make_optimizer(
        model,
        lr=LR / 10 if remedy == "small rate" else LR,
        optimizer="radam" if remedy == "RAdam" else "adam",
    )
    curve = train_on_sequences(
        model,
        batches,
        steps=steps + (warmup if remedy == "second moment first" else 0),
        optimizer=optimizer,
        scheduler=_schedule(remedy, optimizer, warmup),
        max_grad_norm=1.0 if remedy == "clipping" else math.inf,
    )
    return {"final_loss": curve.final_loss(), "accuracy": curve.final_accuracy()}
