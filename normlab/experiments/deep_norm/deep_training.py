"""Which deep Transformers train from the first step on, each at its own best learning rate?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from normlab import schedules
from normlab.experiments.deep_norm.groups import Group, Sizes, make_batches, make_model
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.sequence_training import Curve, train_on_sequences
from normlab.experiments.settings import Count, Index, Positive, Share, check_one_for_each


@dataclass(frozen=True)
class Config(Sizes):
    """Reversal of short sequences with Adam, betas 0.9 and 0.98."""

    #: placements, and DeepNorm's halves
    groups: tuple[Group, ...] = ("post_norm", "pre_norm", "deep_norm", "alpha only", "beta only")
    depths: tuple[Count, ...] = (50,)  #: numbers of layers
    steps: tuple[Count, ...] = (120,)  #: most updates, at each of `depths`
    lrs: tuple[Positive, ...] = (2e-4, 6e-4, 2e-3, 6e-3)  #: learning rates
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: each gives weights and batches
    warmup: Index = 0  #: updates over which the rate rises linearly; 0 starts at the rate itself
    #: stop once 20 steps in a row have a larger mean accuracy; None goes on
    stop_above: Share | None = 0.9
    width: Count = 32
    heads: Count = 4
    vocabulary: Count = 6
    length: Count = 6

    def __post_init__(self) -> None:
        check_one_for_each(self, "steps", of="depths")


def run_one(config: Config, depth: int, group: Group, lr: float, seed: int) -> dict[str, Any]:
    """Train one network.

    Measures:
        accuracies: share of right tokens, before each update, to two decimals; every batch is new.
        final_accuracy: mean of the last ten steps.
        learned_at: first step, counted from 1, with an accuracy above 0.9; None if there is none.
    """
    model = make_model(group, config, layers=depth, seed=seed)
    # fused: one pass over some hundreds of small tensors
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98), fused=True)
    found = train_on_sequences(
        model,
        make_batches(config, seed=seed),
        steps=config.steps[config.depths.index(depth)],
        optimizer=optimizer,
        scheduler=schedules.constant(optimizer, warmup_steps=config.warmup),
        stop_above=config.stop_above,
    )
    curve = Curve(found.losses, tuple(round(share, 2) for share in found.accuracies))
    return {
        "accuracies": curve.accuracies,
        "final_accuracy": curve.final_accuracy(10),
        "learned_at": curve.first_step_above(0.9),
    }


run = Sweep(run_one, depth="depths", group="groups", lr="lrs", seed="seeds")
