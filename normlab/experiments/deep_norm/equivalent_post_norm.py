"""Is DeepNorm's alpha anything but a smaller branch that learns more slowly, and how slowly?"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from normlab.experiments.data.sequences import sequence_batches
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import Transformer, make_transformer
from normlab.experiments.sequence_training import sequence_loss
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.training import minimize
from normlab.residual import DeepNorm, PostNorm

Optimizer = Literal["sgd", "adam"]


@dataclass(frozen=True)
class Config:
    """A DeepNorm network and the Post-LN network made from it, trained in float64."""

    optimizers: tuple[Optimizer, ...] = get_args(Optimizer)  #: of both networks
    #: p; the rate of each branch's last layer is divided by alpha to the p in the Post-LN network
    powers: tuple[Index, ...] = (0, 1, 2)
    layers: Count = 4  #: L
    alpha: Positive = 2.5  #: factor of the skips
    sgd_lr: Positive = 0.1  #: rate of SGD
    adam_lr: Positive = 1e-3  #: rate of Adam
    steps: Count = 20  #: updates
    seed: Index = 0  #: of weights and batches


def _last_layer(sublayer: Any) -> nn.Linear:
    last = sublayer[-1] if isinstance(sublayer, nn.Sequential) else sublayer.out_proj
    assert isinstance(last, nn.Linear)
    return last


def convert_to_post_norm(model: Transformer) -> tuple[Transformer, list[nn.Parameter]]:
    """Write a DeepNorm network as a Post-LN network that computes the same.

    The last layer of every branch is divided by alpha, the eps of its norm by alpha².

    Returns:
        The Post-LN network, and the parameters that were divided.

    Raises:
        TypeError: a block is not DeepNorm.
    """
    post = copy.deepcopy(model)
    divided: list[nn.Parameter] = []
    for i, block in enumerate(post.blocks):
        if not isinstance(block, DeepNorm):
            raise TypeError(f"model: block {i} is {type(block).__name__}; expected DeepNorm")
        norm: Any = block.norm
        norm.eps = norm.eps / block.alpha**2
        with torch.no_grad():
            for p in _last_layer(block.sublayer).parameters():
                p.div_(block.alpha)
                divided.append(p)
        post.blocks[i] = PostNorm(block.sublayer, norm)
    return post, divided


def _train(model: Transformer, optimizer: torch.optim.Optimizer, config: Config) -> list[float]:
    batches = sequence_batches(seed=1000 + config.seed)
    return minimize(lambda b: sequence_loss(model, b)[0], batches, optimizer, steps=config.steps)


def run_one(config: Config, optimizer: Optimizer, power: int) -> dict[str, float]:
    """Train both on the same batches.

    Measures:
        gap: largest difference of the two losses before any update.
    """
    deep = make_transformer(
        "deep_norm", layers=config.layers, seed=config.seed, alpha=config.alpha, beta=1.0
    ).double()
    post, divided = convert_to_post_norm(deep)
    ids = {id(p) for p in divided}
    others = [p for p in post.parameters() if id(p) not in ids]
    slow: dict[str, Any] = {"params": divided}
    make: Any = torch.optim.SGD
    lr = config.sgd_lr
    if optimizer == "adam":
        make, lr = torch.optim.Adam, config.adam_lr
        # Adam's eps has the units of the gradient, which is alpha times as large there
        slow["eps"] = 1e-8 * config.alpha
    slow["lr"] = lr / config.alpha**power
    deep_losses = _train(deep, make(deep.parameters(), lr=lr), config)
    post_losses = _train(post, make([{"params": others}, slow], lr=lr), config)
    return {"gap": max(abs(a - b) for a, b in zip(deep_losses, post_losses, strict=True))}


run = Sweep(run_one, optimizer="optimizers", power="powers")
