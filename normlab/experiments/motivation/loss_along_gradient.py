"""How far does the gradient of a step stay true, with and without norms?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy
from tqdm import tqdm

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.networks.classifiers import Activation, FeatureNorm, Init, make_mlp
from normlab.experiments.settings import Count, Index, Positive, check_settings
from normlab.experiments.training import shuffled_batches

__all__ = ["Config", "Look", "Result", "Trace", "gradient_shift", "look_along", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """An MLP on digits, plain SGD; on the way the loss is measured along the gradient.

    Attributes:
        norms: arms.
        seeds: of split, weights and batches.
        widths: sizes of the network.
        activation: of the hidden layers.
        init: of the weights, as in `make_mlp`.
        lr: learning rate.
        batch_size: digits in a batch.
        steps: updates.
        every: steps between two looks.
        multiples: of the step that training takes; the looks go so far along the gradient.
    """

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")
    seeds: tuple[Index, ...] = (0, 1, 2)
    widths: tuple[Count, ...] = (64, 64, 64, 64, 64, 64, 64, 10)
    activation: Activation = "relu"
    init: Init = "he"
    lr: Positive = 0.1
    batch_size: Count = 128
    steps: Count = 150
    every: Count = 10
    multiples: tuple[Positive, ...] = (0.5, 1.0, 2.0, 4.0)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.lr <= 0:
            raise ValueError(f"lr: got {self.lr}; expected a positive learning rate")
        if not 1 <= self.every <= self.steps:
            raise ValueError(
                f"every: got {self.every} for {self.steps} steps; expected 1 to {self.steps}"
            )
        if not self.multiples or min(self.multiples) <= 0:
            raise ValueError(f"multiples: got {self.multiples}; expected positive step sizes")


@dataclass(frozen=True)
class Look:
    """What one look along the gradient saw, for the batch that training takes there.

    Attributes:
        span: largest minus smallest loss over the multiples of the step, the start included.
        gradient_change: largest distance of the gradient there from the gradient here.
        smoothness: largest such distance per distance gone, a local Lipschitz constant.
        shift: relative change of the last hidden layer's gradient when only the layers before
            it take the step.
        cosine: between these two gradients.
    """

    span: float
    gradient_change: float
    smoothness: float
    shift: float
    cosine: float


@dataclass(frozen=True)
class Trace:
    """One run; every list has one number for each look.

    Attributes:
        norm: arm.
        seed: of split, weights and batches.
        steps: of the looks.
        span: as in :class:`Look`.
        gradient_change: as in :class:`Look`.
        smoothness: as in :class:`Look`.
        shift: as in :class:`Look`.
        cosine: as in :class:`Look`.
        final_loss: mean training loss of the last ten steps.
    """

    norm: str
    seed: int
    steps: tuple[int, ...]
    span: tuple[float, ...]
    gradient_change: tuple[float, ...]
    smoothness: tuple[float, ...]
    shift: tuple[float, ...]
    cosine: tuple[float, ...]
    final_loss: float

    def mean(self, measure: str, *, until: int | None = None) -> float:
        """Mean of one list, over the looks at steps below `until` if it is given."""
        pairs = zip(self.steps, getattr(self, measure), strict=True)
        values = [value for step, value in pairs if until is None or step < until]
        return sum(values) / len(values)


@dataclass(frozen=True)
class Result:
    """All runs."""

    outcomes: tuple[Trace, ...]

    def means(self, measure: str, norm: str, *, until: int | None = None) -> list[float]:
        """:meth:`Trace.mean` of every seed of one arm."""
        return [t.mean(measure, until=until) for t in self.outcomes if t.norm == norm]


def _gradients(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, list[Tensor]]:
    loss = cross_entropy(model(x), y)
    return loss.item(), list(torch.autograd.grad(loss, list(model.parameters())))


def _distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    return sum((p - q).square().sum().item() for p, q in zip(a, b, strict=True)) ** 0.5


@torch.no_grad()
def _move(parameters: Sequence[Tensor], gradients: Sequence[Tensor], step: float) -> None:
    for p, g in zip(parameters, gradients, strict=True):
        p.sub_(step * g)


@torch.no_grad()
def _restore(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for p, v in zip(parameters, values, strict=True):
        p.copy_(v)


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
    start = [p.detach().clone() for p in parameters]
    _move(parameters[:place], first[:place], lr)
    _, second = _gradients(model, x, y)
    _restore(parameters, start)
    before, after = first[place].flatten(), second[place].flatten()
    relative = ((after - before).norm() / before.norm()).item()
    return relative, cosine_similarity(before, after, dim=0).item()


def look_along(
    model: nn.Sequential, x: Tensor, y: Tensor, *, lr: float, multiples: Sequence[float]
) -> Look:
    """Go along the gradient of a batch, look, and put the parameters back."""
    parameters = list(model.parameters())
    loss, here = _gradients(model, x, y)
    start = [p.detach().clone() for p in parameters]
    size = _distance(here, [torch.zeros_like(g) for g in here])
    along, changes, ratios = [], [], []
    for multiple in multiples:
        _move(parameters, here, multiple * lr)
        there_loss, there = _gradients(model, x, y)
        _restore(parameters, start)
        along.append(there_loss)
        changes.append(_distance(there, here))
        ratios.append(changes[-1] / (multiple * lr * size))
    shift, cosine = gradient_shift(model, x, y, lr=lr)
    span = max(loss, *along) - min(loss, *along)
    return Look(span, max(changes), max(ratios), shift, cosine)


def run_one(config: Config, norm: FeatureNorm, seed: int) -> Trace:
    """Train one network and look along its gradient on the way."""
    data = load_digits_split(seed)
    model = make_mlp(
        config.widths, norm, seed=seed, activation=config.activation, init=config.init
    ).train()
    batches = shuffled_batches(len(data.y_train), config.batch_size, seed=seed)
    steps, looks, losses = [], [], []
    for step in range(config.steps):
        batch = next(batches)
        x, y = data.x_train[batch], data.y_train[batch]
        if step % config.every == 0:
            steps.append(step)
            looks.append(look_along(model, x, y, lr=config.lr, multiples=config.multiples))
        loss, gradients = _gradients(model, x, y)
        losses.append(loss)
        _move(list(model.parameters()), gradients, config.lr)
    tail = losses[-10:]
    return Trace(
        norm,
        seed,
        tuple(steps),
        tuple(look.span for look in looks),
        tuple(look.gradient_change for look in looks),
        tuple(look.smoothness for look in looks),
        tuple(look.shift for look in looks),
        tuple(look.cosine for look in looks),
        sum(tail) / len(tail),
    )


def run(config: Config) -> Result:
    """Follow every arm with every seed."""
    runs = [(norm, seed) for norm in config.norms for seed in config.seeds]
    return Result(tuple(run_one(config, *each) for each in tqdm(runs, disable=None)))
