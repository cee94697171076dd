"""Does a batch norm train a small convolutional network faster, and is it the batch?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from normlab.experiments.batch_norm.noise_and_gap import with_ghosts
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import ImageNorm, Init, make_convnet
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import evaluate, train_on_digits

Whole = Literal["none", "none, He init", "batch_norm", "group_norm", "layer_norm"]
Ghosts = Literal["ghosts of 32", "ghosts of 8", "ghosts of 4", "ghosts of 2"]
Group = Literal[Whole, Ghosts]
GROUPS: dict[Group, tuple[ImageNorm, Init]] = {
    "none": ("none", "default"),
    "none, He init": ("none", "he"),
    "batch_norm": ("batch_norm", "default"),
    "group_norm": ("group_norm", "default"),
    "layer_norm": ("layer_norm", "default"),
}
# batch norm whose statistics are shared by so many samples
GHOSTS: dict[Group, int] = {name: int(name.split()[-1]) for name in get_args(Ghosts)}


@dataclass(frozen=True)
class Config:
    """Four convolutions on digits, plain SGD, every group at every learning rate."""

    #: a norm, or none, and its initialization; ghosts: samples that share statistics
    groups: tuple[Group, ...] = tuple(GROUPS)
    #: learning rates of SGD without momentum
    lrs: tuple[Positive, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    #: pairs of batch size and number of steps
    batches: tuple[tuple[Count, Count], ...] = ((128, 120), (4, 600))
    #: each gives a split, initial weights and an order of batches
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    channels: tuple[Count, ...] = (1, 16, 16, 32, 32)  #: of the convolutions, input first
    #: a run is solved once the mean loss of ten steps falls below this
    solved_below: Positive = 0.5


def _make(config: Config, group: Group, seed: int) -> nn.Sequential:
    norm, init = GROUPS["batch_norm" if group in GHOSTS else group]
    model = make_convnet(config.channels, norm, seed=seed, init=init)
    return with_ghosts(model, GHOSTS[group]) if group in GHOSTS else model


def run_one(
    config: Config, group: Group, batch_size: int, steps: int, lr: float, seed: int
) -> dict[str, float | None]:
    """Train one network.

    Measures:
        train_loss: mean of the last 20 steps, in train mode; None for a run that diverged.
        steps_to_solve: first step whose last ten losses average below `solved_below`, or None.
        eval_accuracy: on the 500 test digits, with running statistics.
    """
    data = load_digits_split(seed).as_images()
    model = _make(config, group, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = train_on_digits(model, data, optimizer, steps=steps, batch_size=batch_size, seed=seed)
    below = 10 * config.solved_below
    solved = (i for i in range(10, len(losses) + 1) if sum(losses[i - 10 : i]) < below)
    finished = len(losses) == steps and math.isfinite(losses[-1])
    return {
        "train_loss": sum(losses[-20:]) / 20 if finished else None,
        "steps_to_solve": next(solved, None),
        "eval_accuracy": evaluate(model, data.x_test, data.y_test).accuracy,
    }


def _points(config: Config) -> list[dict[str, Any]]:
    return [
        {"group": group, "batch_size": batch_size, "steps": steps, "lr": lr, "seed": seed}
        for group in config.groups
        for batch_size, steps in config.batches
        for lr in config.lrs
        for seed in config.seeds
    ]


run = Sweep(run_one, _points)


@torch.no_grad()
def differing_share(config: Config, group: Group, seed: int) -> float:
    """How much of what reaches the output layer differs between samples, before any training.

    Returns:
        Variance over 128 training digits of the pooled features, divided by their mean square;
        both averaged over channels. 0: every digit gives the same features.
    """
    data = load_digits_split(seed).as_images()
    pooled = _make(config, group, seed)[:-1](data.x_train[:128]).double()  # (128, channels)
    differing = (pooled - pooled.mean(0)).square().mean()
    return (differing / pooled.square().mean()).item()
