"""Does a batch norm train a small convolutional network faster, and which part of it does?

Its lead may come from the start, from the learning rate, from the samples that share a mean, or
from the mean alone: a group for each.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.batch_norm.noise_and_gap import with_ghosts
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import ImageNorm, Init, make_convnet
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.layers import BatchNorm2d

SOLVED_BELOW = 0.5  # training loss, mean of ten steps
STEPS = {128: 120, 4: 600}  # by batch size
CHANNELS = (1, 16, 16, 32, 32)
Whole = Literal["none", "none, He init", "batch_norm", "group_norm", "layer_norm"]
Ghosts = Literal["ghosts of 32", "ghosts of 8", "ghosts of 4", "ghosts of 2"]
Partial = Literal[
    "mean only",
    "mean only, He init",
    "mean at the output, He init",
    "mean without gradient, He init",
    "mean of the start, He init",
    "spread only",
    "spread only, He init",
    "batch norm, He init",
    "batch mean, image spread",
]
Group = Literal[Whole, Ghosts, Partial]
Mean = Literal["batch", "batch, no gradient", "start", "none"]
Spread = Literal["batch", "image", "none"]
GROUPS: dict[Group, tuple[ImageNorm, Init]] = {
    "none": ("none", "default"),
    "none, He init": ("none", "he"),
    "batch_norm": ("batch_norm", "default"),
    "group_norm": ("group_norm", "default"),
    "layer_norm": ("layer_norm", "default"),
}
# batch norm whose statistics are shared by so many samples
GHOSTS: dict[Group, int] = {name: int(name.split()[-1]) for name in get_args(Ghosts)}
# initialization, and what is left of batch norm: whose mean, whose standard deviation
PARTIAL: dict[Group, tuple[Init, Mean, Spread]] = {
    "mean only": ("default", "batch", "none"),
    "mean only, He init": ("he", "batch", "none"),
    "mean at the output, He init": ("he", "batch", "none"),
    "mean without gradient, He init": ("he", "batch, no gradient", "none"),
    "mean of the start, He init": ("he", "start", "none"),
    "spread only": ("default", "none", "batch"),
    "spread only, He init": ("he", "none", "batch"),
    "batch norm, He init": ("he", "batch", "batch"),
    "batch mean, image spread": ("default", "batch", "image"),
}
CELLS = {"batch": (0, 2, 3), "image": (1, 2, 3)}  # of (N, C, H, W)


class PartialBatchNorm(nn.Module):
    """Batch norm of images with a part left out, or taken from elsewhere.

    It has no running statistics: in evaluation, too, it takes those of the batch.

    Args:
        mean: subtract each channel's mean over the "batch", through which the gradient passes or
            not, over the first batch that the layer has seen ("start"), or none.
        spread: divide by the standard deviation of each channel over the "batch", by the root
            mean square of all that is left of one "image", or by nothing.
    """

    def __init__(self, channels: int, mean: Mean, spread: Spread) -> None:
        super().__init__()
        self.mean = mean
        self.spread = spread
        self.start: Tensor | None = None
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, input: Tensor) -> Tensor:
        """Subtract and divide what the layer has kept of batch norm."""
        mean = input.mean(CELLS["batch"], keepdim=True)  # (1, C, 1, 1)
        if self.start is None:
            self.start = mean.detach()
        if self.mean == "start":
            mean = self.start
        centered = input - (mean.detach() if self.mean == "batch, no gradient" else mean)
        y = input if self.mean == "none" else centered
        if self.spread != "none":
            y = y / (centered.square().mean(CELLS[self.spread], keepdim=True) + 1e-5).sqrt()
        return self.weight * y + self.bias


def make_network(group: Group, seed: int) -> nn.Sequential:
    if group in GROUPS:
        norm, init = GROUPS[group]
        return make_convnet(CHANNELS, norm, seed=seed, init=init)
    if group in GHOSTS:
        return with_ghosts(make_convnet(CHANNELS, "batch_norm", seed=seed), GHOSTS[group])
    init, mean, spread = PARTIAL[group]
    if group == "mean at the output, He init":  # and nowhere else
        model = make_convnet(CHANNELS, seed=seed, init=init)
        return model.insert(len(model) - 2, PartialBatchNorm(CHANNELS[-1], mean, spread))
    layers = [
        PartialBatchNorm(m.num_features, mean, spread) if isinstance(m, BatchNorm2d) else m
        for m in make_convnet(CHANNELS, "batch_norm", seed=seed, init=init)
    ]
    return nn.Sequential(*layers)


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
        group: a norm, or none, and its initialization; ghosts: samples that share statistics;
            or a part of batch norm.
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


def differing_share(group: Group, seed: int, *, steps: int = 0, lr: float = 0.3) -> float:
    """How much of what reaches the output layer differs between samples.

    Args:
        steps: updates before it is measured, in batches of 128; 0 is a fresh network.

    Returns:
        Variance over 128 training digits of the pooled features, divided by their mean square;
        both averaged over channels. 0: every digit gives the same features.
    """
    data = load_digits_split(seed).as_images()
    model = make_network(group, seed)
    if steps:
        fit(model, torch.optim.SGD(model.parameters(), lr=lr), data.batches(128, seed), steps)
    with torch.no_grad():
        pooled = model[:-1](data.x_train[:128]).double()  # (128, channels)
    differing = (pooled - pooled.mean(0)).square().mean()
    return (differing / pooled.square().mean()).item()
