"""Does a Pre-LN Transformer learn as well with RMSNorm, in the same number of steps?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from torch import Tensor

from normlab.experiments.data.sequences import Task, sequence_batches
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import Transformer, make_transformer
from normlab.experiments.rms_norm.pre_rms_conversion import pre_norm_blocks
from normlab.experiments.sequence_training import make_optimizer, train_on_sequences
from normlab.experiments.settings import Bounds, Count, Index, Positive, Share, at_least
from normlab.layers import RMSNorm, prms_norm

StreamNorm = Literal["layer_norm", "rms_norm", "prms_norm"]
Part = Annotated[float, Bounds(math.nextafter(0, 1), 1, "a part, above 0 and at most 1")]


class PartialRMSNorm(RMSNorm):
    """RMSNorm whose mean square comes from the first features only, their part p.

    Source:
        zhang2019root, Section 5.
    """

    def __init__(self, num_features: int, p: float) -> None:
        super().__init__(num_features)
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        return prms_norm(input, self.normalized_shape, self.weight, self.eps, self.p)


@dataclass(frozen=True)
class Config:
    """A Pre-LN Transformer, Adam, no warmup; the norms share weights and batches."""

    tasks: tuple[Task, ...] = ("reversal", "sorting")  #: on random tokens
    norms: tuple[StreamNorm, ...] = ("layer_norm", "rms_norm")  #: of the residual stream
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and batches
    layers: Count = 4  #: L
    width: Count = 32  #: D
    p: Part = 0.0625  #: part of the features that pRMSNorm uses
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2)  #: learning rates
    steps: Annotated[int, at_least(10)] = 250  #: updates
    #: accuracy, as a mean of ten steps, from which a task counts as learned
    learned_above: Share = 0.95


def _make_model(config: Config, norm: StreamNorm, seed: int) -> Transformer:
    model = make_transformer(
        "pre_norm",
        layers=config.layers,
        seed=seed,
        norm="rms_norm" if norm == "prms_norm" else norm,
        width=config.width,
    )
    if norm == "prms_norm":
        for block in pre_norm_blocks(model):
            block.norm = PartialRMSNorm(config.width, config.p)
        model.norm = PartialRMSNorm(config.width, config.p)
    return model


def run_one(config: Config, task: Task, norm: StreamNorm, lr: float, seed: int) -> dict[str, Any]:
    """Train one network.

    Measures:
        learned_at: first step at which the accuracy, as a mean of the last ten steps, is above
            the mark; None if there is none.
        final_loss: mean of the last 20 steps.
        accuracies: mean accuracy of each ten steps.
    """
    model = _make_model(config, norm, seed)
    curve = train_on_sequences(
        model,
        sequence_batches(task, seed=1000 + seed),
        steps=config.steps,
        optimizer=make_optimizer(model, lr=lr),
    )
    accuracies = curve.accuracies
    smooth = [sum(accuracies[i - 10 : i]) / 10 for i in range(10, len(accuracies) + 1)]
    learned = (i + 10 for i, a in enumerate(smooth) if a > config.learned_above)
    return {
        "learned_at": next(learned, None),
        "final_loss": curve.final_loss(),
        "accuracies": tuple(smooth[::10]),
    }


run = Sweep(run_one, task="tasks", norm="norms", lr="lrs", seed="seeds")
