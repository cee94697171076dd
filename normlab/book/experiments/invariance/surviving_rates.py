"""Which learning rates does a network survive whose hidden weights count by direction only?"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, PositiveFloat

from normlab.book.experiments.invariance.invariant_mlp import WIDTHS, train_once
from normlab.book.experiments.networks.classifiers import FeatureNorm
from normlab.book.experiments.sweep import Seed, experiment

WINDOW = 50  # last steps, over which the loss is averaged


@experiment(
    norm=("none", "batch_norm", "layer_norm"),
    lr=(0.01, 0.1, 1.0, 10.0, 100.0, 1000.0),
    seed=range(3),
)
def surviving_rates(
    norm: FeatureNorm,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Annotated[int, Field(ge=WINDOW)] = 400,
) -> dict[str, Any]:
    """Train one network on the digits by plain SGD without decay; follow its first hidden matrix W.

    Args:
        lr: η of the hidden layers; the output layer always learns at 0.1.

    Returns:
        last_loss: mean training loss over the last 50 steps; infinite for a run that diverged.
        first_angle: by which the first step turned W, in radians.
        length_after_one: ‖W‖ after the first step.
        effective_lr: η / ‖W‖² at the end.
    """
    done = train_once(WIDTHS, norm, seed=seed, lr=lr, steps=steps, batch_size=64)
    last = done.losses[-WINDOW:]
    finished = len(done.losses) == steps and math.isfinite(last[-1])
    return {
        "last_loss": sum(last) / len(last) if finished else math.inf,
        "first_angle": done.rotations[0],
        "length_after_one": done.squared_norms[1] ** 0.5,
        "effective_lr": lr / done.squared_norms[-1],
    }
