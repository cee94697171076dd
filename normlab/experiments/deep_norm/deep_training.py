"""Which Transformers of 50 and 100 layers train without warmup?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from normlab.experiments.data.sequences import reversal_batches
from normlab.experiments.deep_norm.depth_profiles import ARMS
from normlab.experiments.recording import rounded
from normlab.experiments.sequence_training import Curve, make_optimizer, train_on_sequences
from normlab.experiments.settings import Count, Index, Positive, check_settings

__all__ = ["Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """Reversal of short sequences with Adam at a constant rate.

    Attributes:
        arms: keys of :data:`~normlab.experiments.deep_norm.depth_profiles.ARMS`.
        depths: numbers of layers.
        steps: updates at each of `depths`.
        seeds: each gives weights and batches.
        lr: learning rate from the first step on.
        width: D.
        heads: of each attention.
        expansion: hidden units of a feed-forward network, in multiples of `width`.
        vocabulary: number of tokens; chance is one in so many.
        length: T.
        batch_size: N.
    """

    arms: tuple[str, ...] = ("post_norm", "pre_norm", "deep_norm", "alpha only", "beta only")
    depths: tuple[Count, ...] = (50, 100)
    steps: tuple[Count, ...] = (110, 70)
    seeds: tuple[Index, ...] = (0, 1, 2)
    lr: Positive = 2e-3
    width: Count = 32
    heads: Count = 4
    expansion: Count = 2
    vocabulary: Count = 6
    length: Count = 6
    batch_size: Count = 16

    def __post_init__(self) -> None:
        check_settings(self)
        unknown = set(self.arms) - set(ARMS)
        if unknown:
            raise ValueError(f"arms: got {sorted(unknown)}; expected some of {', '.join(ARMS)}")
        if len(self.steps) != len(self.depths):
            raise ValueError(
                f"steps: got {len(self.steps)} numbers for {len(self.depths)} depths; give one each"
            )
        if not self.lr > 0:
            raise ValueError(f"lr: got {self.lr}; expected a positive number, such as 2e-3")


@dataclass(frozen=True)
class Outcome:
    """One training run.

    Attributes:
        arm: key of `ARMS`.
        depth: layers.
        seed: of weights and batches.
        losses: before each update, every batch new.
        accuracies: share of right tokens, before each update.
    """

    arm: str
    depth: int
    seed: int
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]

    def final_loss(self, steps: int = 10) -> float:
        """Mean loss of the last steps."""
        return statistics.fmean(self.losses[-steps:])

    def final_accuracy(self, steps: int = 10) -> float:
        """Mean accuracy of the last steps."""
        return statistics.fmean(self.accuracies[-steps:])

    def first_step_above(self, accuracy: float) -> int | None:
        """First step, counted from 1, with a larger accuracy; None if there is none."""
        return Curve(self.losses, self.accuracies, ()).first_step_above(accuracy)


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def of(self, arm: str, depth: int) -> list[Outcome]:
        """One outcome for each seed."""
        return [o for o in self.outcomes if (o.arm, o.depth) == (arm, depth)]


def run_one(config: Config, arm: str, depth: int, steps: int, seed: int) -> Outcome:
    """Train one network."""
    sizes = {"vocabulary": config.vocabulary, "length": config.length}
    model = ARMS[arm].make_model(
        layers=depth,
        seed=seed,
        width=config.width,
        heads=config.heads,
        expansion=config.expansion,
        **sizes,
    )
    curve = train_on_sequences(
        model,
        reversal_batches(batch_size=config.batch_size, seed=1000 + seed, **sizes),
        steps=steps,
        optimizer=make_optimizer(model, lr=config.lr),
    )
    return Outcome(
        arm,
        depth,
        seed,
        tuple(rounded(loss) for loss in curve.losses),
        tuple(rounded(accuracy) for accuracy in curve.accuracies),
    )


def run(config: Config) -> Result:
    """Train every arm at every depth with every seed."""
    return Result(
        tuple(
            run_one(config, arm, depth, steps, seed)
            for depth, steps in zip(config.depths, config.steps, strict=True)
            for arm in config.arms
            for seed in config.seeds
        )
    )
