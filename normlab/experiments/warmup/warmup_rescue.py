"""A Post-LN network has collapsed: which intervention gets it going again?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from normlab import schedules
from normlab.experiments import sequence_training
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import Transformer
from normlab.experiments.sequence_training import make_optimizer, token_variance, train_on_sequences
from normlab.experiments.settings import Count, Index, Positive
from normlab.experiments.warmup.warmup_need import SOLVED

Rescue = Literal[
    "nothing",
    "warmup",
    "warmup, equal gradients",
    "warmup, smaller branches",
    "warmup, new lower layers",
    "warmup, new top layer",
]


@dataclass(frozen=True)
class Config:
    """Post-LN Transformers on reversal that took full steps first, and were then helped."""

    #: "nothing" goes on. All others begin again with a new optimizer and a warmup: as it is; with
    #: the gradient of each parameter scaled to one root mean square, so that none vanishes; with
    #: the last matrix and bias of every branch divided by ten, which brings the inputs of the norms
    #: back to their size; with fresh weights in all layers but the last; with fresh weights in the
    #: last layer only.
    rescues: tuple[Rescue, ...] = get_args(Rescue)
    #: updates at the full rate, without warmup, before the intervention; 0 gives the control, a
    #: fresh network
    full_steps: Index = 20
    lr: Positive = 1e-2  #: peak, of Adam
    warmup: Index = 100  #: updates; 0 goes on at the full rate
    #: each gives weights and batches, the same for every rescue
    seeds: tuple[Index, ...] = (0, 1, 2)
    layers: Count = 6  #: L
    steps: Count = 300  #: updates after the intervention


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


@torch.no_grad()
def renew_layers(model: Transformer, fresh: Transformer, layers: range) -> None:
    """Give some layers, counted from 0 at the input, the weights of another network."""
    for layer in layers:
        for block in (2 * layer, 2 * layer + 1):
            model.blocks[block].load_state_dict(fresh.blocks[block].state_dict())


def _intervene(config: Config, rescue: Rescue, model: Transformer, fresh: Transformer) -> None:
    if rescue == "warmup, equal gradients":
        equal_gradients(model)
    elif rescue == "warmup, smaller branches":
        shrink_branches(model)
    elif rescue == "warmup, new lower layers":
        renew_layers(model, fresh, range(config.layers - 1))
    elif rescue == "warmup, new top layer":
        renew_layers(model, fresh, range(config.layers - 1, config.layers))


def run_one(config: Config, rescue: Rescue, seed: int) -> dict[str, float]:
    """Let one network collapse, intervene, and train it on.

    Measures:
        token_variance: of the final features of a batch, right after the intervention.
        accuracy: largest mean of 20 updates in a row after it; chance is 0.1.
    """
    settings = sequence_training.Config(layers=config.layers, seed=seed)
    model, batches = settings.make_model(), settings.make_batches()
    optimizer = make_optimizer(model, lr=config.lr)
    if config.full_steps:
        train_on_sequences(model, batches, steps=config.full_steps, optimizer=optimizer)
    other = sequence_training.Config(layers=config.layers, seed=seed + 500)
    _intervene(config, rescue, model, other.make_model())
    with torch.no_grad():
        variance = token_variance(model.features(next(batches)[0]))
    schedule = None
    if rescue != "nothing":
        optimizer = make_optimizer(model, lr=config.lr)
        schedule = schedules.constant(optimizer, warmup_steps=config.warmup)
    curve = train_on_sequences(
        model,
        batches,
        steps=config.steps,
        optimizer=optimizer,
        scheduler=schedule,
        stop_above=SOLVED,
    )
    means = [sum(curve.accuracies[i : i + 20]) / 20 for i in range(len(curve.accuracies) - 19)]
    return {"token_variance": float(f"{variance:.3g}"), "accuracy": round(max(means), 4)}


run = Sweep(run_one, rescue="rescues", seed="seeds")
