"""What else gets a Post-LN network off the plateau, and what comes too late?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from normlab import schedules
from normlab.experiments import sequence_training
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.sequence_training import SchedulerFactory
from normlab.experiments.settings import Count, Index, Positive, check_at_most, check_settings

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


@dataclass(frozen=True)
class Config:
    """Post-LN Transformers on reversal, each started in another way."""

    #: "nothing"; "warmup"; "small rate" (a tenth, throughout); "clipping" (of the gradient of all
    #: parameters to `max_grad_norm`); "second moment first" (as many batches as the warmup has, at
    #: rate 0, so that Adam's averages settle; then the full rate); "RAdam"; "1 full step first" and
    #: the like (full steps, then the warmup)
    remedies: tuple[Remedy, ...] = get_args(Remedy)
    lr: Positive = 1e-2  #: peak, of Adam
    warmup: Count = 100  #: updates
    max_grad_norm: Positive = 1.0  #: for "clipping"
    #: each gives weights and batches, the same for every remedy
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    layers: Count = 6  #: L
    steps: Count = 300  #: updates at a rate above zero

    def __post_init__(self) -> None:
        check_settings(self)
        check_at_most(self, "warmup", "steps")


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
    settings = sequence_training.Config(placement="post_norm", seed=seed)
    model, drawn = settings.make_model(), settings.make_batches()
    optimizer = sequence_training.make_optimizer(model, lr=1.0)
    before = torch.cat([p.detach().flatten().double() for p in model.parameters()])
    for i in range(batches + 1):
        for group in optimizer.param_groups:
            group["lr"] = float(i == batches)
        optimizer.zero_grad()
        sequence_training.sequence_loss(model, next(drawn))[0].backward()
        optimizer.step()
    after = torch.cat([p.detach().flatten().double() for p in model.parameters()])
    return (after - before).square().mean().sqrt().item()


def _factory(config: Config, remedy: Remedy) -> SchedulerFactory | None:
    if remedy == "warmup":
        return lambda o: schedules.constant(o, warmup_steps=config.warmup)
    if remedy == "second moment first":
        return lambda o: LambdaLR(o, lambda updates_done: float(updates_done >= config.warmup))
    if remedy in FULL_STEPS:
        full = FULL_STEPS[remedy]
        return lambda o: delayed_warmup(o, full_steps=full, warmup_steps=config.warmup)
    return None


def run_one(config: Config, remedy: Remedy, seed: int) -> dict[str, float]:
    """Train one network.

    Measures:
        final_loss: mean of the last 20 updates.
        accuracy: mean of the last 20 updates; chance is 0.1.
    """
    idle = config.warmup if remedy == "second moment first" else 0
    settings = sequence_training.Config(
        placement="post_norm",
        layers=config.layers,
        steps=config.steps + idle,
        lr=config.lr / 10 if remedy == "small rate" else config.lr,
        optimizer="radam" if remedy == "RAdam" else "adam",
        seed=seed,
    )
    curve = sequence_training.run(
        settings,
        scheduler_factory=_factory(config, remedy),
        max_grad_norm=config.max_grad_norm if remedy == "clipping" else math.inf,
    )
    return {"final_loss": curve.final_loss(), "accuracy": curve.final_accuracy()}


run = Sweep(run_one, remedy="remedies", seed="seeds")
