"""Is DeepNorm's alpha anything but a smaller branch that learns more slowly?"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from normlab.experiments.data.sequences import sequence_batches
from normlab.experiments.networks.transformer import Transformer, make_transformer
from normlab.experiments.sequence_training import sequence_loss
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.sweep import Sweep
from normlab.experiments.training import minimize
from normlab.residual import DeepNorm, PostNorm


@dataclass(frozen=True)
class Config:
    """SGD on a DeepNorm network and on the Post-LN network made from it, in float64.

    Attributes:
        divide_lr: whether the rate of each branch's last layer is divided by alpha² in the
            Post-LN network.
        layers: L.
        alpha: factor of the skips.
        lr: of SGD.
        steps: updates.
        seed: of weights and batches.
    """

    divide_lr: tuple[bool, ...] = (True, False)
    layers: Count = 4
    alpha: Positive = 2.5
    lr: Positive = 0.1
    steps: Count = 20
    seed: Index = 0


def _last_layer(sublayer: Any) -> nn.Linear:
    last = sublayer[-1] if isinstance(sublayer, nn.Sequential) else sublayer.out_proj
    assert isinstance(last, nn.Linear)
    return last


def convert_to_post_norm(model: Transformer) -> tuple[Transformer, list[nn.Parameter]]:
    """Write a DeepNorm network as a Post-LN network that computes the same.

    The last layer of every branch is divided by alpha, the eps of its norm by alpha².

    Args:
        model: its blocks are :class:`~normlab.residual.DeepNorm`; left as it is.

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
    return minimize(
        lambda batch: sequence_loss(model, batch)[0], batches, optimizer, steps=config.steps
    )


def run_one(config: Config, divide_lr: bool) -> dict[str, float]:
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
    slow = config.lr / config.alpha**2 if divide_lr else config.lr
    deep_losses = _train(deep, torch.optim.SGD(deep.parameters(), lr=config.lr), config)
    groups: list[dict[str, Any]] = [{"params": others}, {"params": divided, "lr": slow}]
    post_losses = _train(post, torch.optim.SGD(groups, lr=config.lr), config)
    return {"gap": max(abs(a - b) for a, b in zip(deep_losses, post_losses, strict=True))}


run = Sweep(run_one, divide_lr="divide_lr")
