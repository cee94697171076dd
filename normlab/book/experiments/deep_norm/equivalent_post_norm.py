"""Is DeepNorm's alpha anything but a smaller branch that learns more slowly, and how slowly?"""

from __future__ import annotations

import copy
from typing import Any, Literal, get_args

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from normlab.book.experiments.data.sequences import sequence_batches
from normlab.book.experiments.networks.transformer import Transformer, make_transformer
from normlab.book.experiments.sweep import Steps, experiment
from normlab.book.experiments.training import fit, token_loss
from normlab.residual import DeepNorm, PostNorm

Optimizer = Literal["sgd", "adam"]


ALPHA = 2.5  # factor of the skips
RATES = {"sgd": 0.1, "adam": 1e-3}


def _last_layer(sublayer: Any) -> nn.Linear:
    last = sublayer[-1] if isinstance(sublayer, nn.Sequential) else sublayer.out_proj
    assert isinstance(last, nn.Linear)
    return last


def convert_to_post_norm(model: Transformer) -> tuple[Transformer, list[nn.Parameter]]:
    """Write a DeepNorm network as a Post-LN network that computes the same.

    The last layer of every branch is divided by alpha, the eps of its norm by alpha².

    Returns:
        The Post-LN network, and the parameters that were divided.
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


@experiment(optimizer=get_args(Optimizer), power=(0, 1, 2))
def equivalent_post_norm(
    optimizer: Optimizer,
    power: NonNegativeInt,
    *,
    layers: PositiveInt = 4,
    steps: Steps = 20,
) -> dict[str, float]:
    """Train a DeepNorm network and the Post-LN network made from it on the same batches.

    Args:
        optimizer: of both networks; the rate of SGD is 0.1, that of Adam 0.001.
        power: p; the rate of each branch's last layer is divided by alpha to the p in the Post-LN
            network.

    Returns:
        gap: largest difference of the two losses before any update.
    """
    deep = make_transformer("deep_norm", layers=layers, seed=0, alpha=ALPHA, beta=1.0).double()
    post, divided = convert_to_post_norm(deep)
    ids = {id(p) for p in divided}
    others = [p for p in post.parameters() if id(p) not in ids]
    lr = RATES[optimizer]
    slow: dict[str, Any] = {"params": divided, "lr": lr / ALPHA**power}
    make: Any = torch.optim.SGD
    if optimizer == "adam":
        make = torch.optim.Adam
        # Adam's eps has the units of the gradient, which is alpha times as large there
        slow["eps"] = 1e-8 * ALPHA
    losses = [
        fit(model, make(groups, lr=lr), sequence_batches(seed=1000), steps, loss_of=token_loss)
        for model, groups in ((deep, deep.parameters()), (post, [{"params": others}, slow]))
    ]
    return {"gap": max(abs(a - b) for a, b in zip(*losses, strict=True))}
