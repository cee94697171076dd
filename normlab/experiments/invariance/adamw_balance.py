"""How long does AdamW remember a weight's first length, and how far does a step turn it?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from normlab.experiments.data.batches import shuffled_batches
from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.invariance.invariant_mlp import turned_by
from normlab.experiments.settings import Count, Index, Positive, check_settings
from normlab.experiments.training import minimize


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


@dataclass(frozen=True)
class Config:
    """The digits with ordinary layers and AdamW, from starts of two lengths.

    A share of the labels is drawn anew in every batch, so that there is always something left
    to learn, as there is in a language model.
    """

    lrs: tuple[Positive, ...] = (1e-2, 2e-3)  #: η of every parameter
    #: λ of the two hidden matrices; nothing else is decayed
    decays: tuple[Positive, ...] = (3.0, 1.0)
    start_scales: tuple[Positive, ...] = (1.0, 10.0)  #: factors of the initial hidden matrices
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of split, weights, order and random labels
    width: Count = 64  #: units in each of two hidden layers
    random_labels: Positive = 0.2  #: share of labels that are drawn anew
    spans: Positive = 5.0  #: length of the training, in units of 1 / (ηλ) steps
    batch_size: Count = 64  #: samples in a batch
    points: Count = 50  #: of the recorded curve

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def times(self) -> list[float]:
        """Times of the recorded lengths, in units of 1 / (ηλ) steps."""
        return [self.spans * i / self.points for i in range(self.points + 1)]


def make_network(width: int, *, seed: int, start_scale: float = 1.0) -> nn.Sequential:
    """Linear → layer norm → ReLU, twice, and a linear layer, with torch's defaults.

    The two hidden matrices are multiplied by `start_scale`.
    """
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs in (64, width):
        layers += [nn.Linear(inputs, width, bias=False), nn.LayerNorm(width), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(width, 10))
    for matrix in hidden_matrices(network):
        matrix.data.mul_(start_scale)
    return network


def hidden_matrices(network: nn.Sequential) -> list[Tensor]:
    """Weights of the linear layers that a norm follows."""
    return [
        layer.weight
        for layer, following in pairwise(list(network))
        if isinstance(layer, nn.Linear) and isinstance(following, nn.LayerNorm)
    ]


def run_one(
    config: Config, lr: float, weight_decay: float, start_scale: float, seed: int
) -> dict[str, Any]:
    """Train one network and follow its second hidden matrix W.

    Measures:
        lengths: ‖W‖ over its predicted length, at `config.times`.
        turn: root mean square of the angle of a step over the last fifth, over the prediction.
        loss: mean training loss over the last fifth; the random labels alone keep it above 0.
    """
    data = load_digits_split(seed)
    network = make_network(config.width, seed=seed, start_scale=start_scale)
    matrices = hidden_matrices(network)
    others = [p for p in network.parameters() if all(p is not m for m in matrices)]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr)
    generator = torch.Generator().manual_seed(seed)

    def loss_of(batch: Tensor) -> Tensor:
        y = data.y_train[batch]
        random = torch.rand(len(batch), generator=generator) < config.random_labels
        drawn = torch.randint(10, (len(batch),), generator=generator)
        return cross_entropy(network(data.x_train[batch]), torch.where(random, drawn, y))

    weight = matrices[1]
    kept = [weight.detach().clone()]
    lengths, turns = [float(weight.detach().norm())], []

    def follow(step: int) -> None:
        lengths.append(float(weight.detach().norm()))
        turns.append(turned_by(kept[0], weight.detach()))
        kept[0] = weight.detach().clone()

    steps = round(config.spans / (lr * weight_decay))
    batches = shuffled_batches(len(data.y_train), config.batch_size, seed=seed)
    losses = minimize(loss_of, batches, optimizer, steps=steps, after_step=follow)
    balanced, last = adamw_length(lr, weight_decay, weight.numel()), steps // 5
    turn = math.sqrt(sum(t * t for t in turns[-last:]) / last)
    shown = (round(steps * i / config.points) for i in range(config.points + 1))
    return {
        "lengths": tuple(lengths[step] / balanced for step in shown),
        "turn": turn / adamw_angle(lr, weight_decay),
        "loss": sum(losses[-last:]) / last,
    }


run = Sweep(run_one, lr="lrs", weight_decay="decays", start_scale="start_scales", seed="seeds")
