"""What does each norm lose when only two images fit into memory at a time?

The gradients of 32 images make a step in every run. They pass through the network together, or in
parts whose gradients are accumulated; only a norm that averages over the batch can notice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.batch_norm.noise_and_gap import GhostBatchNorm
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_convnet
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.layers import (
    BatchNorm2d,
    BatchRenorm2d,
    FilterResponseNorm,
    GroupNorm,
    filter_response_norm,
    weight_standardization,
)

Group = Literal[
    "none",
    "batch_norm",
    "batch_renorm",
    "group_norm",
    "group_norm, standardized weights",
    "filter_response_norm",
    "filter_response_norm, learned eps",
    "batch_norm, eps 0.1",
    "batch_renorm, eps 0.1",
]
LARGER_EPS: tuple[Group, ...] = ("batch_norm, eps 0.1", "batch_renorm, eps 0.1")
# of groups that look at more than one image at a time; the others do not see how many there are
PART_SIZES: dict[Group, tuple[int, ...]] = {
    "batch_norm": (32, 8, 4, 2),
    "batch_renorm": (2,),
    **dict.fromkeys(LARGER_EPS, (2,)),
}


class LearnedEps(nn.Module):
    """Filter response norm that learns the eps of each channel, for channels of few positions.

    Shape:
        input (N, C, H, W); returns the same shape.

    Units:
        eps has the units of x²; it is 1e-6 plus a learned magnitude that starts at 1e-4.

    Source:
        singh2020filter.
    """

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_channels))
        self.bias = nn.Parameter(torch.zeros(num_channels))
        self.threshold = nn.Parameter(torch.zeros(num_channels))
        self.learned_eps = nn.Parameter(torch.full((num_channels,), 1e-4))

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`; see :func:`~normlab.layers.filter_response_norm`."""
        eps = 1e-6 + self.learned_eps.abs()
        return filter_response_norm(input, self.weight, self.bias, self.threshold, eps)


def _group_norm(channels: int) -> nn.Module:
    return GroupNorm(channels // 4, channels)


NORMS: dict[Group, Callable[[int], nn.Module]] = {
    "none": lambda channels: nn.Identity(),
    "batch_norm": BatchNorm2d,
    "batch_renorm": BatchRenorm2d,
    "group_norm": _group_norm,
    "group_norm, standardized weights": _group_norm,
    "filter_response_norm": FilterResponseNorm,
    "filter_response_norm, learned eps": LearnedEps,
    "batch_norm, eps 0.1": partial(BatchNorm2d, eps=0.1),
    "batch_renorm, eps 0.1": partial(BatchRenorm2d, eps=0.1),
}
OVER_BATCH = tuple(PART_SIZES)
CHANNELS = (1, 16, 16, 32, 32, 64, 64)  # of the convolutions, input first


def make_network(
    group: Group, channels: tuple[int, ...], *, part_size: int, seed: int
) -> nn.Sequential:
    """Build convolution → norm → ReLU blocks; one seed gives every group the same weights.

    The weights are drawn as He et al. do. Filter response norm brings its own threshold, which
    takes the place of the ReLU. In training, `part_size` images share the statistics of a batch
    norm.

    Shape:
        the network maps (N, channels[0], H, W) to (N, 10).

    Source:
        he2015delving, Eq. 10.
    """
    layers: list[nn.Module] = list(make_convnet(channels, "none", seed=seed, init="he"))
    for i, convolution in enumerate(layers):
        if not isinstance(convolution, nn.Conv2d):
            continue
        norm = NORMS[group](convolution.out_channels)
        layers[i + 1] = GhostBatchNorm(norm, part_size) if group in OVER_BATCH else norm
        if group.startswith("filter_response_norm"):
            layers[i + 2] = nn.Identity()
        if group == "group_norm, standardized weights":
            weight_standardization(convolution)
    return nn.Sequential(*layers)


def widen_bounds(model: nn.Module, done: float) -> None:
    """Set the bounds of batch renorm as its paper does: batch norm first, then wider and wider.

    They grow while the share of the training that is over goes from 0.1 to 0.5.
    """
    share = min(max((done - 0.1) / 0.4, 0.0), 1.0)
    for module in model.modules():
        if isinstance(module, BatchRenorm2d):
            module.r_max, module.d_max = 1 + 2 * share, 5 * share


@experiment(
    skip=lambda group, part_size: part_size not in PART_SIZES.get(group, (32,)),
    group=tuple(group for group in get_args(Group) if group not in LARGER_EPS),
    part_size=(32, 8, 4, 2),
    lr=(0.003, 0.01, 0.03, 0.1, 0.3),
    seed=range(3),
)
def small_batches(
    group: Group,
    part_size: PositiveInt,
    lr: PositiveFloat,
    seed: Seed,
    *,
    channels: tuple[PositiveInt, ...] = CHANNELS,
    steps: Steps = 250,
) -> dict[str, float | None]:
    """Train convolutions on digits with plain SGD, 32 images a step.

    Args:
        group: what stands behind each convolution.
        part_size: images that pass through the network together, largest first.

    Returns:
        train_loss: mean of the last tenth of the steps, in train mode; None if it diverged.
        validation_loss: on digits that choose the rate, in eval mode; None if it diverged.
        test_wrong: of the 500 test digits, in eval mode.
        part_wrong: of the test digits in parts of `part_size`, with the statistics of each.
    """
    data, kept_out = load_digits_split(seed).as_images(), 297
    x_valid, y_valid = data.x_train[:kept_out], data.y_train[:kept_out]
    data = replace(data, x_train=data.x_train[kept_out:], y_train=data.y_train[kept_out:])
    model = make_network(group, channels, part_size=part_size, seed=seed)
    widen_bounds(model, 0.0)
    losses = fit(
        model,
        torch.optim.SGD(model.parameters(), lr=lr),
        data.batches(32, seed),
        steps,
        after_step=lambda step: widen_bounds(model, step / steps),
    )
    last = losses[-max(1, steps // 10) :]
    validation = evaluate(model, x_valid, y_valid).loss
    finished = math.isfinite(losses[-1]) and math.isfinite(validation)
    size = len(data.y_test)
    whole = evaluate(model, data.x_test, data.y_test)
    in_parts = evaluate(model, data.x_test, data.y_test, mode="train", batch_size=part_size)
    return {
        "train_loss": sum(last) / len(last) if finished else None,
        "validation_loss": validation if finished else None,
        "test_wrong": round(size * (1 - whole.accuracy)),
        "part_wrong": round(size * (1 - in_parts.accuracy)),
    }
