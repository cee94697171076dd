"""Does the effect of updating all layers together equal the sum of updating each alone?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.book.experiments.data.batches import shuffled_batches
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.motivation.loss_along_gradient import step_taken
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import fit

LR = 0.01  # of training
EVERY = 10  # steps between two tries
WIDTHS = (64, 64, 64, 64, 64, 64, 64, 10)


def _groups(model: nn.Sequential) -> list[list[Tensor]]:
    """Parameters of each linear layer, with those of the norm behind it."""
    groups: list[list[Tensor]] = []
    for module in model:
        if isinstance(module, nn.Linear):
            groups.append([])
        groups[-1].extend(module.parameters())
    return groups


@experiment(norm=("none", "batch_norm", "layer_norm"), seed=range(3))
def update_interaction(
    norm: FeatureNorm,
    seed: Seed,
    *,
    promises: tuple[PositiveFloat, ...] = (0.01, 0.1, 0.5),
    steps: Annotated[int, Field(ge=EVERY)] = 50,
) -> list[dict[str, float]]:
    """Train an MLP on digits; every ten steps try an update layer by layer, then whole.

    Args:
        promises: sizes of the tried updates, as the share of the loss that the gradient promises
            to remove (step times squared gradient norm over loss), so that networks with gradients
            of different size are asked the same.

    Returns:
        promise: size of the tried updates.
        alone: decrease of the loss, summed over updating each linear layer alone, as a share of
            what the gradient promised; median.
        together: the same decrease when all layers take the step; median.
    """
    data = load_digits_split(seed)
    model = make_mlp(WIDTHS, norm, seed=seed, activation="relu", init="he").train()
    ahead = shuffled_batches(len(data.y_train), 128, seed=seed + 1000)
    tries: dict[float, list[tuple[float, float]]] = {share: [] for share in promises}

    def try_updates(step: int) -> None:
        if step % EVERY:
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

        for share in promises:
            promised = share * loss.item()
            lr = promised / squared
            alone = sum(decrease(*layer, lr) for layer in layers)
            together = decrease(parameters, gradients, lr)
            tries[share].append((alone / promised, together / promised))

    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    fit(model, optimizer, data.batches(128, seed), steps, after_step=try_updates)
    return [
        {
            "promise": share,
            "alone": statistics.median(alone for alone, _ in pairs),
            "together": statistics.median(together for _, together in pairs),
        }
        for share, pairs in tries.items()
    ]
