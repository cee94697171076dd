"""How far does the gradient of a step stay true, with and without norms?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from normlab.book.experiments.data.batches import shuffled_batches
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import Activation, FeatureNorm, Init, make_mlp
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.tables import where

WIDTHS = (64, 64, 64, 64, 64, 64, 64, 10)
LR = 0.1
EVERY = 10  # steps between two looks
MULTIPLES = (0.5, 1.0, 2.0, 4.0)  # of the step that training takes; looks go so far


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
    """Go along the gradient of a batch, look, and put the parameters back."""
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


@experiment(norm=("none", "batch_norm", "layer_norm"), seed=range(3))
def loss_along_gradient(
    norm: FeatureNorm,
    seed: Seed,
    *,
    activation: Activation = "relu",
    init: Init = "he",
    steps: PositiveInt = 150,
) -> dict[str, Any]:
    """Train an MLP on digits by plain SGD, and look along its gradient on the way.

    Args:
        steps: updates; there is a look before every tenth.

    Returns:
        steps: of the looks. What follows has one number for each look, at the batch that
            training takes there.
        span: largest minus smallest loss over the multiples of the step, the start included.
        gradient_change: largest distance of the gradient there from the gradient here.
        smoothness: largest such distance per distance gone, a local Lipschitz constant.
        shift: relative change of the last hidden layer's gradient when only the layers before
            it take the step.
        cosine: between these two gradients.
        final_loss: mean training loss of the last ten steps.
    """
    data = load_digits_split(seed)
    model = make_mlp(WIDTHS, norm, seed=seed, activation=activation, init=init).train()
    batches = shuffled_batches(len(data.y_train), 128, seed=seed)
    looks, losses = [], []
    for step in range(steps):
        batch = next(batches)
        x, y = data.x_train[batch], data.y_train[batch]
        if step % EVERY == 0:
            looks.append(look_along(model, x, y, lr=LR, multiples=MULTIPLES))
        loss, gradients = _gradients(model, x, y)
        losses.append(loss)
        take_step(list(model.parameters()), gradients, LR)
    tail = losses[-10:]
    return {
        "steps": list(range(0, steps, EVERY)),
        **{measure: [look[measure] for look in looks] for measure in looks[0]},
        "final_loss": sum(tail) / len(tail),
    }


def means(table: pd.DataFrame, measure: str, norm: str, *, until: float = math.inf) -> list[float]:
    """Mean of a measure over the looks at steps below `until`, one for each seed."""
    return [
        statistics.fmean(v for step, v in zip(steps, values, strict=True) if step < until)
        for steps, values in where(table, norm=norm)[["steps", measure]].itertuples(index=False)
    ]
