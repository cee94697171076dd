"""Does the effect of updating all layers together equal the sum of updating each alone?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.experiments.data.batches import shuffled_batches
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.motivation.loss_along_gradient import step_taken
from normlab.experiments.networks.classifiers import Activation, FeatureNorm, Init, make_mlp
from normlab.experiments.settings import Count, Index, Positive, check_at_most
from normlab.experiments.training import train_on_digits


@dataclass(frozen=True)
class Config:
    """An MLP on digits; every few steps an update is tried layer by layer, then whole."""

    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")  #: of the hidden layers
    #: sizes of the tried updates, as the share of the loss that the gradient promises to remove
    #: (step times squared gradient norm over loss), so that networks with gradients of different
    #: size are asked the same
    promises: tuple[Positive, ...] = (0.01, 0.1, 0.5)
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of split, weights and batches
    widths: tuple[Count, ...] = (64, 64, 64, 64, 64, 64, 64, 10)  #: sizes of the network
    activation: Activation = "relu"  #: of the hidden layers
    init: Init = "he"  #: of the weights, as in `make_mlp`
    lr: Positive = 0.01  #: learning rate of training
    batch_size: Count = 128  #: digits in a batch
    steps: Count = 50  #: updates of training
    every: Count = 10  #: steps between two tries

    def __post_init__(self) -> None:
        check_at_most(self, "every", "steps")


def _groups(model: nn.Sequential) -> list[list[Tensor]]:
    """Parameters of each linear layer, with those of the norm behind it."""
    groups: list[list[Tensor]] = []
    for module in model:
        if isinstance(module, nn.Linear):
            groups.append([])
        groups[-1].extend(module.parameters())
    return groups


def run_one(config: Config, norm: FeatureNorm, seed: int) -> list[dict[str, float]]:
    """Train one network and try updates on the way.

    Measures:
        promise: size of the tried updates.
        alone: decrease of the loss, summed over updating each linear layer alone, as a share of
            what the gradient promised; median.
        together: the same decrease when all layers take the step; median.
    """
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
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(loss, parameters)
        rest = iter(gradients)
        layers = [(group, [next(rest) for _ in group]) for group in _groups(model)]
        squared = sum(g.square().sum().item() for g in gradients)

        def decrease(moved: Sequence[Tensor], by: Sequence[Tensor], lr: float) -> float:
            with step_taken(moved, by, lr), torch.no_grad():
                return loss.item() - cross_entropy(model(x), y).item()

        for share in config.promises:
            promised = share * loss.item()
            lr = promised / squared
            alone = sum(decrease(*layer, lr) for layer in layers)
            together = decrease(parameters, gradients, lr)
            tries[share].append((alone / promised, together / promised))

    train_on_digits(
        model,
        data,
        torch.optim.SGD(model.parameters(), lr=config.lr),
        steps=config.steps,
        batch_size=config.batch_size,
        seed=seed,
        after_step=try_updates,
    )
    return [
        {
            "promise": share,
            "alone": statistics.median(alone for alone, _ in pairs),
            "together": statistics.median(together for _, together in pairs),
        }
        for share, pairs in tries.items()
    ]


run = Sweep(run_one, norm="norms", seed="seeds")
