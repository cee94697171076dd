"""How far does the gradient of a step stay true, with and without norms?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from normlab.experiments.data.batches import shuffled_batches
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import Activation, FeatureNorm, Init, make_mlp
from normlab.experiments.results import Result
from normlab.experiments.settings import Count, Index, Positive, check_at_most


@dataclass(frozen=True)
class Config:
    """An MLP on digits, plain SGD; on the way the loss is measured along the gradient."""

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")  #: of the hidden layers
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of split, weights and batches
    widths: tuple[Count, ...] = (64, 64, 64, 64, 64, 64, 64, 10)  #: sizes of the network
    activation: Activation = "relu"  #: of the hidden layers
    init: Init = "he"  #: of the weights, as in `make_mlp`
    lr: Positive = 0.1  #: learning rate
    batch_size: Count = 128  #: digits in a batch
    steps: Count = 150  #: updates
    every: Count = 10  #: steps between two looks
    #: of the step that training takes; the looks go so far along the gradient
    multiples: tuple[Positive, ...] = (0.5, 1.0, 2.0, 4.0)

    def __post_init__(self) -> None:
        check_at_most(self, "every", "steps")


def _gradients(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, list[Tensor]]:
    loss = cross_entropy(model(x), y)
    return loss.item(), list(torch.autograd.grad(loss, list(model.parameters())))


def _distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    return sum((p - q).square().sum().item() for p, q in zip(a, b, strict=True)) ** 0.5


def take_step(parameters: Sequence[Tensor], gradients: Sequence[Tensor], lr: float) -> None:
    """Descend in place."""
    with torch.no_grad():
        for p, g in zip(parameters, gradients, strict=True):
            p.sub_(lr * g)


@contextmanager
def step_taken(
    parameters: Sequence[Tensor], gradients: Sequence[Tensor], lr: float
) -> Iterator[None]:
    """Descend in place, and put the parameters back at the end."""
    start = [p.detach().clone() for p in parameters]
    take_step(parameters, gradients, lr)
    yield
    with torch.no_grad():
        for p, value in zip(parameters, start, strict=True):
            p.copy_(value)


def gradient_shift(model: nn.Sequential, x: Tensor, y: Tensor, *, lr: float) -> tuple[float, float]:
    """Internal covariate shift of the last hidden layer, as a change of its gradient.

    The gradient of its weight is taken twice: now, and after all layers before it took one
    step. The parameters are then put back.

    Returns:
        Norm of the change over the norm of the first gradient, and the cosine of the two.

    Source:
        santurkar2018how, Definition 2.1.
    """
    linear = [module for module in model if isinstance(module, nn.Linear)]
    weight = linear[-2].weight
    parameters = list(model.parameters())
    place = next(i for i, p in enumerate(parameters) if p is weight)
    _, first = _gradients(model, x, y)
    with step_taken(parameters[:place], first[:place], lr):
        _, second = _gradients(model, x, y)
    before, after = first[place].flatten(), second[place].flatten()
    relative = ((after - before).norm() / before.norm()).item()
    return relative, cosine_similarity(before, after, dim=0).item()


def look_along(
    model: nn.Sequential, x: Tensor, y: Tensor, *, lr: float, multiples: Sequence[float]
) -> dict[str, float]:
    """Go along the gradient of a batch, look, and put the parameters back; see `run_one`."""
    parameters = list(model.parameters())
    loss, here = _gradients(model, x, y)
    size = _distance(here, [torch.zeros_like(g) for g in here])
    losses, changes = [loss], []
    for multiple in multiples:
        with step_taken(parameters, here, multiple * lr):
            there_loss, there = _gradients(model, x, y)
        losses.append(there_loss)
        changes.append(_distance(there, here))
    shift, cosine = gradient_shift(model, x, y, lr=lr)
    return {
        "span": max(losses) - min(losses),
        "gradient_change": max(changes),
        "smoothness": max(c / (m * lr * size) for c, m in zip(changes, multiples, strict=True)),
        "shift": shift,
        "cosine": cosine,
    }


def run_one(config: Config, norm: FeatureNorm, seed: int) -> dict[str, Any]:
    """Train one network and look along its gradient on the way.

    Measures:
        steps: of the looks. What follows has one number for each look, at the batch that
            training takes there:
        span: largest minus smallest loss over the multiples of the step, the start included.
        gradient_change: largest distance of the gradient there from the gradient here.
        smoothness: largest such distance per distance gone, a local Lipschitz constant.
        shift: relative change of the last hidden layer's gradient when only the layers before
            it take the step.
        cosine: between these two gradients.
        final_loss: mean training loss of the last ten steps.
    """
    data = load_digits_split(seed)
    model = make_mlp(
        config.widths, norm, seed=seed, activation=config.activation, init=config.init
    ).train()
    batches = shuffled_batches(len(data.y_train), config.batch_size, seed=seed)
    looks, losses = [], []
    for step in range(config.steps):
        batch = next(batches)
        x, y = data.x_train[batch], data.y_train[batch]
        if step % config.every == 0:
            looks.append(look_along(model, x, y, lr=config.lr, multiples=config.multiples))
        loss, gradients = _gradients(model, x, y)
        losses.append(loss)
        take_step(list(model.parameters()), gradients, config.lr)
    tail = losses[-10:]
    return {
        "steps": tuple(range(0, config.steps, config.every)),
        **{measure: tuple(look[measure] for look in looks) for measure in looks[0]},
        "final_loss": sum(tail) / len(tail),
    }


run = Sweep(run_one, norm="norms", seed="seeds")


def means(result: Result, measure: str, norm: str, *, until: float = math.inf) -> list[float]:
    """Mean of a measure over the looks at steps below `until`, one for each seed."""
    return [
        statistics.fmean(v for s, v in zip(o.steps, getattr(o, measure), strict=True) if s < until)
        for o in result.of(norm=norm)
    ]
