"""Which learning rates does a network survive whose hidden weights count by direction only?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.invariance.invariant_mlp import train_once
from normlab.experiments.networks.classifiers import FeatureNorm
from normlab.experiments.settings import Count, Index, Positive, check_at_most, check_settings


@dataclass(frozen=True)
class Config:
    """The digits under plain SGD without decay; the output layer always learns at 0.1."""

    #: of the hidden layers; "none" is the control
    norms: tuple[FeatureNorm, ...] = ("none", "batch_norm", "layer_norm")
    lrs: tuple[Positive, ...] = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)  #: η of the hidden layers
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of split, weights and order
    widths: tuple[Count, ...] = (64, 32, 32, 10)  #: of the network
    steps: Count = 400  #: updates
    batch_size: Count = 64  #: samples in a batch
    window: Count = 50  #: last steps, over which the loss is averaged

    def __post_init__(self) -> None:
        check_settings(self)
        check_at_most(self, "window", "steps")


def run_one(config: Config, norm: FeatureNorm, lr: float, seed: int) -> dict[str, Any]:
    """Train one network and follow its first hidden matrix W.

    Measures:
        last_loss: mean training loss over the window; infinite for a run that diverged.
        first_angle: by which the first step turned W, in radians.
        length_after_one: ‖W‖ after the first step.
        effective_lr: η / ‖W‖² at the end.
    """
    done = train_once(
        config.widths, norm, seed=seed, lr=lr, steps=config.steps, batch_size=config.batch_size
    )
    last = done.losses[-config.window :]
    finished = len(done.losses) == config.steps and math.isfinite(last[-1])
    return {
        "last_loss": sum(last) / len(last) if finished else math.inf,
        "first_angle": done.rotations[0],
        "length_after_one": done.squared_norms[1] ** 0.5,
        "effective_lr": lr / done.squared_norms[-1],
    }


run = Sweep(run_one, norm="norms", lr="lrs", seed="seeds")
