"""A Post-LN network has collapsed: which intervention gets it going again?"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from normlab import schedules
from normlab.book.experiments.networks.transformer import Transformer
from normlab.book.experiments.sequence_training import (
    make_optimizer,
    reversal_network,
    token_variance,
    train_on_sequences,
)
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.warmup.warmup_need import SOLVED

Rescue = Literal[
    "nothing",
    "warmup",
    "warmup, equal gradients",
    "warmup, smaller branches",
]


LR = 1e-2  # peak, of Adam


def equal_gradients(model: Transformer, size: float = 1e-3) -> None:
    """Scale every later gradient of every parameter to one root mean square."""

    def scale(gradient: Tensor) -> Tensor:
        return gradient * (size / gradient.square().mean().sqrt().clamp_min(1e-30))

    for parameter in model.parameters():
        parameter.register_hook(scale)


@torch.no_grad()
def shrink_branches(model: Transformer, factor: float = 0.1) -> None:
    """Multiply the last matrix and bias of every branch."""
    for name in ("attention_out", "feed_forward_out"):
        for weight in model.matrices(name):
            weight.mul_(factor)
    for name, parameter in model.named_parameters():
        if name.endswith(("out_proj.bias", "sublayer.2.bias")):
            parameter.mul_(factor)


def _intervene(rescue: Rescue, model: Transformer) -> None:
    if rescue == "warmup, equal gradients":
        equal_gradients(model)
    elif rescue == "warmup, smaller branches":
        shrink_branches(model)


@experiment(rescue=get_args(Rescue), seed=range(3))
def warmup_rescue(
    rescue: Rescue,
    seed: Seed,
    *,
    full_steps: NonNegativeInt = 20,
    warmup: NonNegativeInt = 100,
    layers: PositiveInt = 6,
    steps: Steps = 300,
) -> dict[str, float]:
    """Let a Post-LN Transformer on reversal collapse, intervene, and train it on.

    Args:
        rescue: "nothing" goes on. All others begin again with a new optimizer and a warmup: as it
            is; with the gradient of each parameter scaled to one root mean square, so that none
            vanishes; with the last matrix and bias of every branch divided by ten, which brings the
            inputs of the norms back to their size.
        full_steps: updates at the full rate, without warmup, before the intervention; 0 gives the
            control, a fresh network.
        warmup: updates; 0 goes on at the full rate.

    Returns:
        token_variance: of the final features of a batch, right after the intervention.
        accuracy: largest mean of 20 updates in a row after it; chance is 0.1.
    """
    model, batches = reversal_network("post_norm", layers=layers, seed=seed)
    optimizer = make_optimizer(model, lr=LR)
    if full_steps:
        train_on_sequences(model, batches, steps=full_steps, optimizer=optimizer)
    _intervene(rescue, model)
    with torch.no_grad():
        variance = token_variance(model.features(next(batches)[0]))
    schedule = None
    if rescue != "nothing":
        optimizer = make_optimizer(model, lr=LR)
        schedule = schedules.constant(optimizer, warmup_steps=warmup)
    curve = train_on_sequences(
        model,
        batches,
        steps=steps,
        optimizer=optimizer,
        scheduler=schedule,
        stop_above=SOLVED,
    )
    return {
        "token_variance": float(f"{variance:.3g}"),
        "accuracy": round(curve.best_accuracy(), 4),
    }
