"""Which Transformers of 50 and 100 layers train without warmup?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from normlab.experiments.deep_norm.groups import Group, make_batches, make_model
from normlab.experiments.recording import rounded
from normlab.experiments.sequence_training import Curve, make_optimizer, train_on_sequences
from normlab.experiments.settings import Count, Index, Positive, check_one_for_each
from normlab.experiments.sweep import Sweep


@dataclass(frozen=True)
class Config:
    """Reversal of short sequences with Adam at a constant rate.

    Attributes:
        groups: placements, and DeepNorm's halves.
        depths: numbers of layers.
        steps: updates at each of `depths`.
        seeds: each gives weights and batches.
        lr: learning rate from the first step on.
        stop_above: stop once 20 steps in a row have a larger mean accuracy; None goes on.
        width: D.
        heads: of each attention.
        expansion: hidden units of a feed-forward network, in multiples of `width`.
        vocabulary: number of tokens; chance is one in so many.
        length: T.
        batch_size: N.
    """

    groups: tuple[Group, ...] = ("post_norm", "pre_norm", "deep_norm", "alpha only", "beta only")
    depths: tuple[Count, ...] = (50, 100)
    steps: tuple[Count, ...] = (110, 70)
    seeds: tuple[Index, ...] = (0, 1, 2)
    lr: Positive = 2e-3
    stop_above: float | None = None
    width: Count = 32
    heads: Count = 4
    expansion: Count = 2
    vocabulary: Count = 6
    length: Count = 6
    batch_size: Count = 16

    def __post_init__(self) -> None:
        check_one_for_each(self, "steps", of="depths")


def run_one(config: Config, group: Group, depth: int, seed: int) -> dict[str, Any]:
    """Train one network.

    Measures:
        losses: before each update, every batch new.
        accuracies: share of right tokens, before each update.
        final_loss: mean of the last ten steps.
        final_accuracy: mean of the last ten steps.
        learned_at: first step, counted from 1, with an accuracy above 0.9; None if there is none.
    """
    model = make_model(group, config, layers=depth, seed=seed)
    found = train_on_sequences(
        model,
        make_batches(config, seed=seed),
        steps=config.steps[config.depths.index(depth)],
        optimizer=make_optimizer(model, lr=config.lr),
        stop_above=config.stop_above,
    )
    curve = Curve(tuple(map(rounded, found.losses)), tuple(map(rounded, found.accuracies)))
    return {
        "losses": curve.losses,
        "accuracies": curve.accuracies,
        "final_loss": curve.final_loss(10),
        "final_accuracy": curve.final_accuracy(10),
        "learned_at": curve.first_step_above(0.9),
    }


run = Sweep(run_one, depth="depths", group="groups", seed="seeds")
