"""Does a network learn whose inputs are held still, or moved on purpose at every step?

A network of sigmoids that learns nothing is trained beside two cures: larger weights, and batch
norm. All three are tried again with their lower layers held still. The cures are tried with what
enters each nonlinearity shifted and scaled, unit by unit: by numbers that are drawn anew in every
step, or by numbers that swing slowly.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.motivation.shifting_inputs import (
    PROBE,
    Activation,
    initialize_xavier_,
    make_network,
    watch,
)
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit

SHIFT = 1.0  # of a unit, at most, in its standard deviations
SCALE = 0.5  # change of its scale, at most
PERIOD = 100  # steps until a drift is back where it was
WINDOW = 20  # steps in which movement is measured
SCORED = (20, 300)  # steps

Once = Literal["mean_once", "spread_once", "both_once"]
Group = Literal["none", "batch_norm", "large_weights", "half_behind", Once]
Movement = Literal["none", "frozen", "all_frozen", "drifting", "jumping"]


class Moved(nn.Module):
    """A layer whose output is shifted and scaled in training, each unit by numbers of its own.

    In evaluation, and while `moves` is false, it is the layer alone.

    Args:
        layer: maps (N, C) to (N, C), such as a batch norm or `nn.Identity()`.
        drifts: whether the numbers swing with the time, which the training loop keeps in
            `time`, or are drawn anew whenever the layer is called.
        seed: of the phases at which the units start to swing.

    Source:
        the jumps in the spirit of santurkar2018how, Section 2.1, where each sample is moved.
    """

    def __init__(self, layer: nn.Module, units: int, *, drifts: bool, seed: int) -> None:
        super().__init__()
        self.layer = layer
        self.drifts = drifts
        self.moves = True
        self.time = 0
        generator = torch.Generator().manual_seed(seed)
        self.phases = 2 * math.pi * torch.rand(2, units, generator=generator)

    def forward(self, input: Tensor) -> Tensor:
        """Scale each unit about its mean over the batch, and shift it by its deviations."""
        y: Tensor = self.layer(input)
        if not (self.training and self.moves):
            return y
        if self.drifts:
            shift, scale = torch.sin(2 * math.pi * self.time / PERIOD + self.phases)
        else:
            shift, scale = 2 * torch.rand(2, y.shape[1]) - 1
        mean, std = y.detach().mean(0), y.detach().std(0, correction=0)
        return mean + (y - mean) * (1 + SCALE * scale) + SHIFT * shift * std


def make_copy(
    group: Group, movement: Movement, seed: int, *, activation: Activation
) -> nn.Sequential:
    """Five hidden layers of 100 units, the weights Xavier-normal, or four times as large.

    What is standardized once, in whole or in part, is so on the first `PROBE` training digits.
    """
    norms: dict[Group, Literal["none", "batch_norm"]] = {"batch_norm": "batch_norm"}
    model = make_network(norms.get(group, "none"), seed, activation=activation)
    if group == "large_weights":
        initialize_xavier_(model, 4.0, seed=seed)
    if group == "half_behind":
        for module in model:
            if isinstance(module, nn.Sigmoid):
                module.register_forward_hook(lambda _, x, y: y - 0.5)
    if group in get_args(Once):
        x = load_digits_split(seed).x_train[:PROBE]
        standardize_once_(model, x, mean=group != "spread_once", spread=group != "mean_once")
    if movement in ("frozen", "all_frozen"):
        model[: 3 * (4 if movement == "frozen" else 5)].requires_grad_(False)
    if movement in ("drifting", "jumping"):
        for i in range(1, len(model), 3):  # linear, norm, nonlinearity, ...
            drifts = movement == "drifting"
            model[i] = Moved(model[i], 100, drifts=drifts, seed=1000 * seed + i)
    return model


@torch.no_grad()
def standardize_once_(
    model: nn.Sequential, x: Tensor, *, mean: bool = True, spread: bool = True
) -> None:
    """Let what enters each nonlinearity have mean 0 and deviation 1 on these samples, for a start.

    Shape:
        x: (N, C), what enters the model; the layer at its end stays as it is.
    """
    for module in list(model)[:-1]:
        if isinstance(module, nn.Linear):
            z = module(x)
            if mean:
                module.bias.sub_(z.mean(0))
            if spread:
                module.weight.div_(z.std(0)[:, None])
                module.bias.div_(z.std(0))
        x = module(x)


def mean_move(mean: Tensor, std: Tensor, steps: int) -> list[float]:
    """How far the means move in so many steps, averaged over all starts, in spreads; each layer.

    Shape:
        mean, std: (looks, layers, units), of a look after every step.
    """
    moved = (mean[steps:] - mean[:-steps]).abs() / std[:-steps].clamp_min(1e-9)
    return [rounded(value) for value in moved.mean((0, 2)).tolist()]


def _is_not_asked(group: Group, movement: Movement, activation: Activation) -> bool:
    """What learns nothing is not moved, and tanh learns without larger weights."""
    is_moved = movement in ("drifting", "jumping")
    return (group == "none" and is_moved) or (
        activation == "tanh" and (group == "large_weights" or movement == "frozen")
    )


@experiment(
    activation=("sigmoid", "tanh"),
    group=("none", "large_weights", "batch_norm"),
    movement=("none", "frozen", "drifting", "jumping"),
    lr=(0.01, 0.03, 0.1, 0.3, 1.0),
    seed=range(5),
    skip=_is_not_asked,
)
def movement_put_back(
    activation: Activation, group: Group, movement: Movement, lr: PositiveFloat, seed: Seed
) -> dict[str, Any]:
    """Train a network of five hidden layers of 100 units on digits for 300 steps.

    Looks and scores draw from a generator of their own, so they do not change the run.

    Args:
        activation: of the hidden layers.
        group: the weights start Xavier-normal; "large_weights" are four times as large; "once":
            each unit is standardized before the first step, or centered, or divided; "half_behind"
            subtracts a half from what each sigmoid puts out.
        movement: "frozen" trains the last hidden layer and the output alone, so that what they
            receive stands still, "all_frozen" the output alone; the other two shift what enters
            each nonlinearity by up to a standard deviation of the unit, and scale it by a half to
            one and a half.
        lr: of SGD with momentum 0.9, in batches of 64.

    Returns:
        moved: accuracy on the 500 test digits after 20 and after 300 steps by their own
            statistics, moved as in training; mean of four draws.
        unmoved: the same with nothing moved.
        running: the same by the running averages, with nothing moved.
        spread: (layers,): standard deviation of what enters a nonlinearity, before training, mean
            over units.
        bare_step: (layers,), of steps 0 to 20: how far the mean of what enters a nonlinearity
            moves in one step, mean over units and steps.
        one_step: (layers,): the same in standard deviations of before.
        all_steps: (layers,): the same from step 0 to step 20.
    """
    data = load_digits_split(seed)
    model = make_copy(group, movement, seed, activation=activation)
    moved_layers = [module for module in model if isinstance(module, Moved)]
    test = data.x_test, data.y_test
    scores: dict[str, list[float]] = {"moved": [], "unmoved": [], "running": []}
    means: list[Tensor] = []
    stds: list[Tensor] = []

    def set_moves(moves: bool) -> None:
        for module in moved_layers:
            module.moves = moves

    def look(step: int) -> None:
        for module in moved_layers:
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

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=lr, momentum=0.9)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the jumps in training
        look(0)
        fit(model, optimizer, data.batches(64, seed), SCORED[-1], after_step=look)
    mean, std = torch.stack(means), torch.stack(stds)
    return {
        **{name: [rounded(value) for value in values] for name, values in scores.items()},
        "spread": [rounded(value) for value in std[0].mean(1).tolist()],
        "bare_step": mean_move(mean, torch.ones_like(std), 1),
        "one_step": mean_move(mean, std, 1),
        "all_steps": mean_move(mean, std, WINDOW),
    }
