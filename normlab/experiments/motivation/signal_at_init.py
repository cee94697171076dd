"""How much of the difference between samples reaches the deeper layers of a fresh network?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.motivation.shifting_inputs import initialize_xavier_, watch
from normlab.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.experiments.settings import Count, Index, Positive, Several


@dataclass(frozen=True)
class Config:
    """A deep network at initialization; nothing is trained."""

    norms: tuple[FeatureNorm, ...] = ("none", "layer_norm", "batch_norm")  #: of the hidden layers
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of split and weights
    activation: Literal["sigmoid", "tanh", "relu"] = "sigmoid"  #: of the hidden layers
    gain: Positive = 1.0  #: the weights are Xavier-normal times this
    depth: Count = 6  #: hidden layers
    width: Count = 100  #: units of each
    batch_size: Several = 256  #: digits that are sent through, as one batch


def run_one(config: Config, norm: FeatureNorm, seed: int) -> dict[str, tuple[float, ...]]:
    """Send one batch through one fresh network.

    Measures:
        spread: standard deviation over the digits of what enters each nonlinearity, root mean
            square over the units, one number per hidden layer, input side first.
        size: root mean square of the same values over digits and units.
    """
    widths = (64, *[config.width] * config.depth, 10)
    model = make_mlp(widths, norm, seed=seed, activation=config.activation)
    initialize_xavier_(model, config.gain, seed=seed)
    seen = watch(model, load_digits_split(seed).x_train[: config.batch_size])
    z = torch.stack(seen).double()  # (layers, digits, units)
    spread = (z - z.mean(1, keepdim=True)).square().mean((1, 2)).sqrt()
    size = z.square().mean((1, 2)).sqrt()
    return {"spread": tuple(spread.tolist()), "size": tuple(size.tolist())}


run = Sweep(run_one, norm="norms", seed="seeds")
