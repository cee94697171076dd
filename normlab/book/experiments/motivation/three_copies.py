"""What does a shift in every step cost batch norm, and how far do a layer's inputs move?

Three of the copies are those of :mod:`shifting_inputs
<normlab.book.experiments.motivation.shifting_inputs>`, at several learning rates, in their first
forty steps; a fourth has one shift, drawn at the start and held. Each is scored in three ways,
because the order of the copies depends on the score.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.motivation.shifting_inputs import (
    PROBE,
    NoisyBatchNorm,
    make_network,
    watch,
)
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.layers import BatchNorm1d

STEPS = 40
EVERY = 5  # steps between two scores
WINDOWS = ((0, 20), (20, 40), (0, 40))  # in which movement is measured


def without_shift(model: nn.Module) -> nn.Module:
    """A copy that normalizes as the model does, in either mode, with its random shift off."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, NoisyBatchNorm):
            module.noise = 0.0
    return model


def hold_a_shift_(model: nn.Module, seed: int) -> None:
    """Let each batch norm start with the shift and scale that a noisy one draws in one step."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, BatchNorm1d):
            shift, scale = 2 * torch.rand(2, module.num_features, generator=generator) - 1
            module.bias.data = shift
            module.weight.data = 1 + scale / 2


def movement(mean: Tensor, std: Tensor, start: int, end: int, steps: int) -> list[float]:
    """How far the means move in so many steps, averaged over a window, in spreads; each layer.

    Shape:
        mean, std: (looks, layers, units), of a look after every step.
    """
    at = torch.arange(start, end - steps + 1)
    moved = (mean[at + steps] - mean[at]).abs() / std[at].clamp_min(1e-6)
    return [rounded(value) for value in moved.mean((0, 2)).tolist()]


@experiment(
    group=("none", "noisy_batch_norm", "held_batch_norm", "batch_norm"),
    lr=(0.01, 0.03, 0.06, 0.1, 0.3),
    seed=range(10),
)
def three_copies(
    group: Literal["none", "noisy_batch_norm", "held_batch_norm", "batch_norm"],
    lr: PositiveFloat,
    seed: Seed,
) -> dict[str, Any]:
    """Train a tanh network of five hidden layers of 100 units on digits for 40 steps.

    Looks and scores draw from a generator of their own, so they do not change the run.

    Args:
        group: "noisy_batch_norm" shifts and scales each unit at random behind its batch norm, anew
            in every step; "held_batch_norm" does so once, by the start of its weight and bias.
        lr: of SGD with momentum 0.9, in batches of 64; the weights start Xavier-normal.

    Returns:
        steps: of the scores; the first is 0, before training.
        own: accuracy on the 500 test digits by their own statistics, with the shift off.
        running: the same by the running averages, with the shift off.
        shifted: the same by their own statistics, with the shift on; mean of four draws.
        step_shift: (windows, layers), of steps 0 to 20, 20 to 40 and 0 to 40: how far the mean of
            what enters a nonlinearity moves in one step, in standard deviations of before, mean
            over units and steps.
        net_shift: (windows, layers): the same from the start of the window to its end.
    """
    data = load_digits_split(seed)
    made = "batch_norm" if group == "held_batch_norm" else group
    model = make_network(made, seed, activation="tanh", depth=5)
    if made != group:
        hold_a_shift_(model, seed)
    test = data.x_test, data.y_test
    own: list[float] = []
    running: list[float] = []
    shifted: list[float] = []
    means: list[Tensor] = []
    stds: list[Tensor] = []

    def look(step: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(10_000 + 1000 * seed + step)
            z = torch.stack(watch(model, data.x_train[:PROBE])).double()  # (layers, digits, units)
            means.append(z.mean(1))
            stds.append(z.std(1, correction=0))
            if step % EVERY == 0:
                own.append(evaluate(without_shift(model), *test, mode="train").accuracy)
                running.append(evaluate(model, *test).accuracy)
                drawn = [evaluate(model, *test, mode="train").accuracy for _ in range(4)]
                shifted.append(sum(drawn) / 4)

    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the random shift in training
        look(0)
        fit(model, optimizer, data.batches(64, seed), STEPS, after_step=look)
    mean, std = torch.stack(means), torch.stack(stds)
    return {
        "steps": list(range(0, STEPS + 1, EVERY)),
        "own": [rounded(value) for value in own],
        "running": [rounded(value) for value in running],
        "shifted": [rounded(value) for value in shifted],
        "step_shift": [movement(mean, std, *window, 1) for window in WINDOWS],
        "net_shift": [movement(mean, std, *window, window[1] - window[0]) for window in WINDOWS],
    }
