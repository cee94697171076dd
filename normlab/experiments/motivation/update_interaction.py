"""Does the effect of updating all layers together equal the sum of updating each alone?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.networks.classifiers import Activation, FeatureNorm, Init, make_mlp
from normlab.experiments.settings import Count, Index, Positive, check_settings
from normlab.experiments.training import shuffled_batches, train

__all__ = ["Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """An MLP on digits; every few steps an update is tried layer by layer, then whole.

    Attributes:
        norms: arms.
        promises: sizes of the tried updates, as the share of the loss that the gradient
            promises to remove (step times squared gradient norm over loss), so that arms with
            gradients of different size are asked the same.
        seeds: of split, weights and batches.
        widths: sizes of the network.
        activation: of the hidden layers.
        init: of the weights, as in `make_mlp`.
        lr: learning rate of training.
        batch_size: digits in a batch.
        steps: updates of training.
        every: steps between two tries.
    """

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")
    promises: tuple[Positive, ...] = (0.01, 0.1, 0.5)
    seeds: tuple[Index, ...] = (0, 1, 2)
    widths: tuple[Count, ...] = (64, 64, 64, 64, 64, 64, 64, 10)
    activation: Activation = "relu"
    init: Init = "he"
    lr: Positive = 0.01
    batch_size: Count = 128
    steps: Count = 50
    every: Count = 10

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.promises or min(self.promises) <= 0:
            raise ValueError(f"promises: got {self.promises}; expected positive shares")
        if self.lr <= 0:
            raise ValueError(f"lr: got {self.lr}; expected a positive learning rate")
        if not 1 <= self.every <= self.steps:
            raise ValueError(
                f"every: got {self.every} for {self.steps} steps; expected 1 to {self.steps}"
            )


@dataclass(frozen=True)
class Outcome:
    """The tries of one size in one run, as shares of what the gradient promised.

    Attributes:
        norm: arm.
        promise: size of the tried updates.
        seed: of split, weights and batches.
        alone: decrease of the loss, summed over updating each linear layer alone; median.
        together: decrease of the loss when all layers take the step; median.
    """

    norm: str
    promise: float
    seed: int
    alone: float
    together: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, measure: str, norm: str, promise: float) -> list[float]:
        """One number for each seed: "alone" or "together"."""
        return [
            getattr(o, measure) for o in self.outcomes if (o.norm, o.promise) == (norm, promise)
        ]


def _groups(model: nn.Sequential) -> list[list[Tensor]]:
    """Parameters of each linear layer, with those of the norm behind it."""
    groups: list[list[Tensor]] = []
    for module in model:
        if isinstance(module, nn.Linear):
            groups.append([])
        groups[-1].extend(module.parameters())
    return groups


@torch.no_grad()
def _loss_after(
    model: nn.Module, moved: list[tuple[Tensor, Tensor]], lr: float, x: Tensor, y: Tensor
) -> float:
    kept = [p.clone() for p, _ in moved]
    for p, g in moved:
        p.sub_(lr * g)
    loss = cross_entropy(model(x), y).item()
    for (p, _), value in zip(moved, kept, strict=True):
        p.copy_(value)
    return loss


def run_one(config: Config, norm: FeatureNorm, seed: int) -> list[Outcome]:
    """Train one network and try updates on the way."""
    data = load_digits_split(seed)
    model = make_mlp(
        config.widths, norm, seed=seed, activation=config.activation, init=config.init
    ).train()
    ahead = shuffled_batches(len(data.y_train), config.batch_size, seed=seed + 1000)
    tries: dict[float, list[tuple[float, float]]] = {share: [] for share in config.promises}

    def try_updates(step: int) -> None:
        if step % config.every:
            return
        batch = next(ahead)
        x, y = data.x_train[batch], data.y_train[batch]
        loss = cross_entropy(model(x), y)
        groups = _groups(model)
        flat = [p for group in groups for p in group]
        gradients = dict(zip(map(id, flat), torch.autograd.grad(loss, flat), strict=True))
        squared = sum(g.square().sum().item() for g in gradients.values())
        whole = [(p, gradients[id(p)]) for p in flat]
        parts = [[(p, gradients[id(p)]) for p in group] for group in groups]
        for share in config.promises:
            promised = share * loss.item()
            lr = promised / squared
            alone = sum(loss.item() - _loss_after(model, part, lr, x, y) for part in parts)
            together = loss.item() - _loss_after(model, whole, lr, x, y)
            tries[share].append((alone / promised, together / promised))

    train(
        model,
        data.x_train,
        data.y_train,
        steps=config.steps,
        batches=shuffled_batches(len(data.y_train), config.batch_size, seed=seed),
        optimizer=torch.optim.SGD(model.parameters(), lr=config.lr),
        after_step=try_updates,
    )
    return [
        Outcome(
            norm,
            share,
            seed,
            statistics.median(alone for alone, _ in pairs),
            statistics.median(together for _, together in pairs),
        )
        for share, pairs in tries.items()
    ]


def run(config: Config) -> Result:
    """Try updates on every arm with every seed."""
    return Result(
        tuple(
            o for norm in config.norms for seed in config.seeds for o in run_one(config, norm, seed)
        )
    )
