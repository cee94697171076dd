"""Does a network learn whose inputs are moved behind every batch norm, on purpose?

A plain network and one with batch norm are trained beside two copies of the second one, in which
each unit is shifted and scaled behind its norm: by numbers that are drawn anew in every step, or
by numbers that swing slowly.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.motivation.shifting_inputs import (
    PROBE,
    Activation,
    make_network,
    watch,
)
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.layers import BatchNorm1d

SHIFT = 3.0  # of a unit, at most, in standard deviations
SCALE = 0.5  # change of its scale, at most
PERIOD = 100  # steps until a drift is back where it was
WINDOW = 20  # steps in which movement is measured
SCORED = (20, 300)  # steps


class MovedBatchNorm(BatchNorm1d):
    """Batch norm whose output is shifted and scaled, each unit by numbers of its own.

    In evaluation, and while `moves` is false, it is a plain batch norm.

    Args:
        drifts: whether the numbers swing with the time, which the training loop keeps in
            `time`, or are drawn anew whenever the layer is called.
        seed: of the phases at which the units start to swing.

    Source:
        the jumps after the experiment of santurkar2018how, Section 2.1.
    """

    def __init__(self, num_features: int, *, drifts: bool, seed: int) -> None:
        super().__init__(num_features)
        self.drifts = drifts
        self.moves = True
        self.time = 0
        generator = torch.Generator().manual_seed(seed)
        self.phases = 2 * math.pi * torch.rand(2, num_features, generator=generator)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize, then shift and scale each unit."""
        y: Tensor = super().forward(input)
        if not (self.training and self.moves):
            return y
        if self.drifts:
            shift, scale = torch.sin(2 * math.pi * self.time / PERIOD + self.phases)
        else:
            shift, scale = 2 * torch.rand(2, y.shape[1]) - 1
        return y * (1 + SCALE * scale) + SHIFT * shift


Group = Literal["none", "batch_norm", "drifting", "jumping"]


def make_copy(group: Group, seed: int, activation: Activation) -> nn.Sequential:
    """Five hidden layers of 100 units, the weights Xavier-normal; equal in all groups."""
    norm: Literal["none", "batch_norm"] = "none" if group == "none" else "batch_norm"
    model = make_network(norm, seed, activation=activation, depth=5)
    if group in ("drifting", "jumping"):
        for i, module in enumerate(model):
            if isinstance(module, BatchNorm1d):
                drifts = group == "drifting"
                model[i] = MovedBatchNorm(100, drifts=drifts, seed=1000 * seed + i)
    return model


def movement(mean: Tensor, std: Tensor, steps: int) -> list[float]:
    """How far the means move in so many steps, averaged over all starts, in spreads; each layer.

    Shape:
        mean, std: (looks, layers, units), of a look after every step.
    """
    moved = (mean[steps:] - mean[:-steps]).abs() / std[:-steps].clamp_min(1e-9)
    return [rounded(value) for value in moved.mean((0, 2)).tolist()]


@experiment(
    activation=("sigmoid", "tanh"),
    group=("none", "batch_norm", "drifting", "jumping"),
    lr=(0.01, 0.03, 0.1, 0.3, 1.0),
    seed=range(5),
)
def movement_put_back(
    activation: Activation, group: Group, lr: PositiveFloat, seed: Seed
) -> dict[str, Any]:
    """Train a network of five hidden layers of 100 units on digits for 300 steps.

    Looks and scores draw from a generator of their own, so they do not change the run.

    Args:
        activation: of the hidden layers.
        group: "drifting" and "jumping" move each unit behind its batch norm by up to three
            standard deviations, and scale it by a half to one and a half.
        lr: of SGD with momentum 0.9, in batches of 64.

    Returns:
        moved: accuracy on the 500 test digits after 20 and after 300 steps by their own
            statistics, moved as in training; mean of four draws.
        unmoved: the same with nothing moved.
        running: the same by the running averages, with nothing moved.
        one_step: (layers,), of steps 0 to 20: how far the mean of what enters a nonlinearity
            moves in one step, in standard deviations of before, mean over units and steps.
        all_steps: (layers,): the same from step 0 to step 20.
    """
    data = load_digits_split(seed)
    model = make_copy(group, seed, activation)
    moved_norms = [module for module in model if isinstance(module, MovedBatchNorm)]
    test = data.x_test, data.y_test
    scores: dict[str, list[float]] = {"moved": [], "unmoved": [], "running": []}
    means: list[Tensor] = []
    stds: list[Tensor] = []

    def set_moves(moves: bool) -> None:
        for module in moved_norms:
            module.moves = moves

    def look(step: int) -> None:
        for module in moved_norms:
            module.time = step
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(10_000 + 1000 * seed + step)
            if step <= WINDOW:
                z = torch.stack(watch(model, data.x_train[:PROBE])).double()
                means.append(z.mean(1))  # z: (layers, digits, units)
                stds.append(z.std(1, correction=0))
            if step in SCORED:
                drawn = [evaluate(model, *test, mode="train").accuracy for _ in range(4)]
                scores["moved"].append(sum(drawn) / 4)
                set_moves(False)
                scores["unmoved"].append(evaluate(model, *test, mode="train").accuracy)
                set_moves(True)
                scores["running"].append(evaluate(model, *test).accuracy)

    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the jumps in training
        look(0)
        fit(model, optimizer, data.batches(64, seed), SCORED[-1], after_step=look)
    mean, std = torch.stack(means), torch.stack(stds)
    return {
        **{name: [rounded(value) for value in values] for name, values in scores.items()},
        "one_step": movement(mean, std, 1),
        "all_steps": movement(mean, std, WINDOW),
    }
