"""Does a batch norm train a small convolutional network faster, and is it the batch?"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import nn

from normlab.book.experiments.batch_norm.noise_and_gap import with_ghosts
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import ImageNorm, Init, make_convnet
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit

SOLVED_BELOW = 0.5  # training loss, mean of ten steps
STEPS = {128: 120, 4: 600}  # by batch size
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


def make_network(group: Group, seed: int) -> nn.Sequential:
    norm, init = GROUPS["batch_norm" if group in GHOSTS else group]
    model = make_convnet((1, 16, 16, 32, 32), norm, seed=seed, init=init)
    return with_ghosts(model, GHOSTS[group]) if group in GHOSTS else model


@experiment(
    group=GROUPS,
    batch_size=STEPS,
    lr=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    seed=range(5),
)
def convnet(
    group: Group,
    batch_size: PositiveInt,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: PositiveInt | None = None,
) -> dict[str, float | None]:
    """Four convolutions on digits, plain SGD, every group at every learning rate.

    Args:
        group: a norm, or none, and its initialization; ghosts: samples that share statistics.
        steps: updates; None takes 120 at batches of 128 and 600 at batches of 4.

    Returns:
        train_loss: mean of the last 20 steps, in train mode; None for a run that diverged.
        steps_to_solve: first step whose last ten losses average below 0.5, or None.
        eval_accuracy: on the 500 test digits, with running statistics.
    """
    steps = steps or STEPS[batch_size]
    data = load_digits_split(seed).as_images()
    model = make_network(group, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = fit(model, optimizer, data.batches(batch_size, seed), steps)
    below = 10 * SOLVED_BELOW
    solved = (i for i in range(10, len(losses) + 1) if sum(losses[i - 10 : i]) < below)
    finished = len(losses) == steps and math.isfinite(losses[-1])
    return {
        "train_loss": sum(losses[-20:]) / 20 if finished else None,
        "steps_to_solve": next(solved, None),
        "eval_accuracy": evaluate(model, data.x_test, data.y_test).accuracy,
    }


@torch.no_grad()
def differing_share(group: Group, seed: int) -> float:
    """How much of what reaches the output layer differs between samples, before any training.

    Returns:
        Variance over 128 training digits of the pooled features, divided by their mean square;
        both averaged over channels. 0: every digit gives the same features.
    """
    data = load_digits_split(seed).as_images()
    pooled = make_network(group, seed)[:-1](data.x_train[:128]).double()  # (128, channels)
    differing = (pooled - pooled.mean(0)).square().mean()
    return (differing / pooled.square().mean()).item()
