"""How long does AdamW remember a weight's first length, and how far does a step turn it?"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.invariance.invariant_mlp import turned_by
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import fit
from normlab.layers import LayerNorm

SPANS = 5.0  # length of the training, in units of 1 / (ηλ) steps
TIMES = tuple(SPANS * i / 50 for i in range(51))  # of the recorded lengths, in those units


def adamw_length(lr: float, weight_decay: float, entries: int) -> float:
    r"""Length at which AdamW's decay and growth balance.

    .. math:: \lVert W \rVert^2 = \frac{\eta\, C}{2 \lambda}

    with η the rate, λ the decay and C the entries of W.

    Conventions:
        the gradients of different steps are independent and each entry of the normalized
        gradient has mean square 1; ηλ is small.

    Source:
        kosson2024rotational.
    """
    return math.sqrt(lr * entries / (2 * weight_decay))


def adamw_angle(lr: float, weight_decay: float, beta1: float = 0.9) -> float:
    r"""Angle in radians by which a step of AdamW turns a weight at balance.

    .. math:: \theta = \sqrt{2 \eta \lambda\, \frac{1 - \beta_1}{1 + \beta_1}}

    where the averaging of the first moment, by beta1, shortens a step.

    Conventions:
        as in :func:`adamw_length`.

    Source:
        kosson2024rotational.
    """
    return math.sqrt(2 * lr * weight_decay * (1 - beta1) / (1 + beta1))


def make_network(width: int, *, seed: int, start_scale: float = 1.0) -> nn.Sequential:
    """Linear → layer norm → ReLU, twice, and a linear layer, with torch's defaults.

    The two hidden matrices are multiplied by `start_scale`.
    """
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs in (64, width):
        layers += [nn.Linear(inputs, width, bias=False), LayerNorm(width), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(width, 10))
    for matrix in hidden_matrices(network):
        matrix.data.mul_(start_scale)
    return network


def hidden_matrices(network: nn.Sequential) -> list[Tensor]:
    """Weights of the linear layers that a norm follows."""
    return [
        layer.weight
        for layer, following in pairwise(list(network))
        if isinstance(layer, nn.Linear) and isinstance(following, LayerNorm)
    ]


@experiment(lr=(1e-2, 2e-3), weight_decay=(3.0, 1.0), start_scale=(1.0, 10.0), seed=range(3))
def adamw_balance(
    lr: PositiveFloat, weight_decay: PositiveFloat, start_scale: PositiveFloat, seed: Seed
) -> dict[str, Any]:
    """Train one network on the digits by AdamW and follow its second hidden matrix W.

    A fifth of the labels is drawn anew in every batch, so that there is always something left
    to learn, as there is in a language model.

    Args:
        lr: η of every parameter.
        weight_decay: λ of the two hidden matrices; nothing else is decayed.
        start_scale: factor of the initial hidden matrices.

    Returns:
        lengths: ‖W‖ over its predicted length, at `TIMES`.
        turn: root mean square of the angle of a step over the last fifth, over the prediction.
        loss: mean training loss over the last fifth; the random labels alone keep it above 0.
    """
    data = load_digits_split(seed)
    network = make_network(64, seed=seed, start_scale=start_scale)
    matrices = hidden_matrices(network)
    others = [p for p in network.parameters() if all(p is not m for m in matrices)]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr)
    generator = torch.Generator().manual_seed(seed)

    def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        random = torch.rand(len(y), generator=generator) < 0.2
        drawn = torch.randint(10, (len(y),), generator=generator)
        return cross_entropy(model(x), torch.where(random, drawn, y))

    weight = matrices[1]
    kept = [weight.detach().clone()]
    lengths, turns = [float(weight.detach().norm())], []

    def follow(step: int) -> None:
        lengths.append(float(weight.detach().norm()))
        turns.append(turned_by(kept[0], weight.detach()))
        kept[0] = weight.detach().clone()

    steps = round(SPANS / (lr * weight_decay))
    batches = data.batches(64, seed)
    losses = fit(network, optimizer, batches, steps, loss_of=loss_of, after_step=follow)
    balanced, last = adamw_length(lr, weight_decay, weight.numel()), steps // 5
    turn = math.sqrt(sum(t * t for t in turns[-last:]) / last)
    shown = (round(steps * i / 50) for i in range(51))
    return {
        "lengths": [lengths[step] / balanced for step in shown],
        "turn": turn / adamw_angle(lr, weight_decay),
        "loss": sum(losses[-last:]) / last,
    }
