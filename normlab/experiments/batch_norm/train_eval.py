"""When do the running statistics catch up with the network that they describe?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.networks.classifiers import make_mlp
from normlab.experiments.settings import Count, Index, Positive, Share
from normlab.experiments.training import evaluate, shuffled_batches, train
from normlab.layers import BatchNorm1d

__all__ = ["Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """A batch norm MLP on digits, scored in both modes while it trains.

    Attributes:
        momenta: weight of the new batch in the running statistics; one network for each.
        check_at: steps after which the network is scored.
        seeds: each gives a split, initial weights and an order of batches.
        widths: sizes of the MLP.
        batch_size: samples in a training batch.
        lr: of Adam.
    """

    momenta: tuple[Share, ...] = (0.1, 0.01)
    check_at: tuple[Index, ...] = (1, 3, 10, 30, 100, 200)
    seeds: tuple[Index, ...] = (0, 1, 2)
    widths: tuple[Count, ...] = (64, 128, 128, 10)
    batch_size: Count = 128
    lr: Positive = 1e-3


@dataclass(frozen=True)
class Outcome:
    """One network after some steps, scored on the test digits.

    Attributes:
        momentum: weight of the new batch.
        seed: of split, weights and order.
        step: updates so far.
        eval_loss: cross-entropy with running statistics.
        batch_loss: cross-entropy with the statistics of the test digits themselves.
    """

    momentum: float
    seed: int
    step: int
    eval_loss: float
    batch_loss: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, measure: str, momentum: float, step: int) -> list[float]:
        """One number for each seed: `measure` at `momentum` after `step` updates."""
        return [
            getattr(o, measure) for o in self.outcomes if (o.momentum, o.step) == (momentum, step)
        ]


def run_one(config: Config, momentum: float, seed: int) -> list[Outcome]:
    """Train one network and score it on the way."""
    data = load_digits_split(seed)
    model = make_mlp(config.widths, "batch_norm", seed=seed)
    for module in model:
        if isinstance(module, BatchNorm1d):
            module.momentum = momentum
    outcomes = []

    def score(step: int) -> None:
        if step in config.check_at:
            running = evaluate(model, data.x_test, data.y_test)
            batch = evaluate(model, data.x_test, data.y_test, mode="train")
            outcomes.append(Outcome(momentum, seed, step, running.loss, batch.loss))

    train(
        model,
        data.x_train,
        data.y_train,
        steps=max(config.check_at),
        batches=shuffled_batches(len(data.y_train), config.batch_size, seed=seed),
        optimizer=torch.optim.Adam(model.parameters(), lr=config.lr),
        after_step=score,
    )
    return outcomes


def run(config: Config) -> Result:
    """Train with every momentum and every seed."""
    return Result(
        tuple(
            outcome
            for momentum in config.momenta
            for seed in config.seeds
            for outcome in run_one(config, momentum, seed)
        )
    )
