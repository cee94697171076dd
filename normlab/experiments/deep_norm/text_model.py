"""Does DeepNorm train a character model at a learning rate at which it reverses sequences?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from normlab.experiments.data.sequences import load_text, text_batches
from normlab.experiments.deep_norm.depth_profiles import ARMS
from normlab.experiments.recording import rounded
from normlab.experiments.sequence_training import (
    SchedulerFactory,
    make_optimizer,
    train_on_sequences,
)
from normlab.experiments.settings import Count, Index, Positive, check_settings

__all__ = ["Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """A causal model of single characters, on the help topics that come with Python.

    Attributes:
        arms: keys of :data:`~normlab.experiments.deep_norm.depth_profiles.ARMS`.
        lrs: learning rates of Adam, from the first step on.
        seeds: each gives weights and windows.
        layers: L.
        steps: updates.
        characters: of the text, from its start.
        width: D.
        heads: of each attention.
        expansion: hidden units of a feed-forward network, in multiples of `width`.
        length: T.
        batch_size: N.
    """

    arms: tuple[str, ...] = ("post_norm", "pre_norm", "deep_norm")
    lrs: tuple[Positive, ...] = (3e-3, 1e-2, 3e-2)
    seeds: tuple[Index, ...] = (0, 1, 2)
    layers: Count = 6
    steps: Count = 300
    characters: Count = 200_000
    width: Count = 32
    heads: Count = 4
    expansion: Count = 4
    length: Count = 32
    batch_size: Count = 16

    def __post_init__(self) -> None:
        check_settings(self)
        unknown = set(self.arms) - set(ARMS)
        if unknown:
            raise ValueError(f"arms: got {sorted(unknown)}; expected some of {', '.join(ARMS)}")
        if not self.lrs or min(self.lrs) <= 0:
            raise ValueError(f"lrs: got {self.lrs}; expected positive numbers, such as 1e-3")


@dataclass(frozen=True)
class Outcome:
    """One trained model.

    Attributes:
        arm: key of `ARMS`.
        lr: learning rate.
        seed: of weights and windows.
        loss: mean of the last 20 steps, in nats for a character; every batch is new.
        entropy: of one character of the text, the loss of the best guess that reads nothing.
    """

    arm: str
    lr: float
    seed: int
    loss: float
    entropy: float

    @property
    def gain(self) -> float:
        """Nats below the best guess that reads nothing."""
        return self.entropy - self.loss


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def gains(self, arm: str, lr: float) -> list[float]:
        """One gain for each seed."""
        return [o.gain for o in self.outcomes if (o.arm, o.lr) == (arm, lr)]


def run_one(
    config: Config,
    arm: str,
    lr: float,
    seed: int,
    *,
    scheduler_factory: SchedulerFactory | None = None,
) -> Outcome:
    """Train one model; `scheduler_factory` is called with the optimizer, None keeps the rate."""
    text = load_text(config.characters)
    model = ARMS[arm].make_model(
        layers=config.layers,
        seed=seed,
        vocabulary=text.vocabulary,
        length=config.length,
        width=config.width,
        heads=config.heads,
        expansion=config.expansion,
        causal=True,
    )
    optimizer = make_optimizer(model, lr=lr)
    curve = train_on_sequences(
        model,
        text_batches(text, length=config.length, batch_size=config.batch_size, seed=1000 + seed),
        steps=config.steps,
        optimizer=optimizer,
        scheduler=None if scheduler_factory is None else scheduler_factory(optimizer),
    )
    last = statistics.fmean(curve.losses[-20:])
    return Outcome(arm, lr, seed, rounded(last), rounded(text.entropy))


def run(config: Config) -> Result:
    """Train every arm at every learning rate with every seed."""
    return Result(
        tuple(
            run_one(config, arm, lr, seed)
            for arm in config.arms
            for lr in config.lrs
            for seed in config.seeds
        )
    )
