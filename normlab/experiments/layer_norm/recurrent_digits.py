"""Does a norm speed up a GRU that reads digits row by row, and from which gain should it start?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from tqdm import tqdm

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.layer_norm.recurrent import Gru, StepNorm, make_gru
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Count, Index, Positive, check_settings
from normlab.experiments.training import evaluate, shuffled_batches, train

__all__ = ["Config", "Outcome", "Result", "run", "run_one", "set_gain"]


@dataclass(frozen=True)
class Config:
    """A GRU that sees one row of 8 pixels per time step, 8 steps in all.

    Attributes:
        norms: arms; "batch_norm" keeps statistics for each time step.
        gains: weights of the norms at the start; "none" has none and runs once.
        batch_sizes: training batch sizes.
        seeds: each gives a split, initial weights and an order of batches.
        hidden: units.
        steps: updates.
        lr: of Adam, the same for all.
        window: updates that each recorded loss is averaged over.
    """

    norms: tuple[StepNorm, ...] = ("none", "layer_norm", "batch_norm")
    gains: tuple[Positive, ...] = (1.0, 0.1)
    batch_sizes: tuple[Count, ...] = (32, 4)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    hidden: Count = 32
    steps: Count = 200
    lr: Positive = 2e-3
    window: Count = 10

    def __post_init__(self) -> None:
        check_settings(self)
        if not all(math.isfinite(gain) and gain > 0 for gain in self.gains):
            raise ValueError(f"gains: got {self.gains}; expected positive numbers, such as 0.1")

    def jobs(self) -> list[tuple[StepNorm, float, int, int]]:
        """Norm, gain, batch size and seed of each run."""
        arms = [(n, g) for n in self.norms for g in (self.gains if n != "none" else (1.0,))]
        return [(*arm, size, s) for arm in arms for size in self.batch_sizes for s in self.seeds]


@dataclass(frozen=True)
class Outcome:
    """One trained network.

    Attributes:
        norm: arm.
        gain: of the norms at the start.
        batch_size: samples in a training batch.
        seed: of split, weights and order.
        curve: training loss, mean of each window.
        accuracy: on the 500 test digits, in eval mode.
    """

    norm: str
    gain: float
    batch_size: int
    seed: int
    curve: tuple[float, ...]
    accuracy: float

    @property
    def final_loss(self) -> float:
        """Training loss of the last two windows."""
        return sum(self.curve[-2:]) / 2


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def arm(self, norm: str, batch_size: int, gain: float = 1.0) -> list[Outcome]:
        """One outcome for each seed."""
        wanted = (norm, batch_size, gain)
        return [o for o in self.outcomes if (o.norm, o.batch_size, o.gain) == wanted]

    def values(self, measure: str, norm: str, batch_size: int, gain: float = 1.0) -> list[float]:
        """One number for each seed: `measure` of the arm `norm` at `batch_size`."""
        return [getattr(o, measure) for o in self.arm(norm, batch_size, gain)]


@torch.no_grad()
def set_gain(model: Gru, gain: float) -> int:
    """Set every weight of every norm to `gain`.

    Returns:
        number of norms that were set.
    """
    weights = [p for name, p in model.norms.named_parameters() if name.endswith("weight")]
    for weight in weights:
        weight.fill_(gain)
    return len(weights)


def run_one(config: Config, norm: StepNorm, gain: float, batch_size: int, seed: int) -> Outcome:
    """Train one network."""
    data = load_digits_split(seed)
    model = make_gru(8, config.hidden, 10, norm, seed=seed, steps=8)
    set_gain(model, gain)
    losses = train(
        model,
        data.x_train.view(-1, 8, 8),
        data.y_train,
        steps=config.steps,
        batches=shuffled_batches(len(data.y_train), batch_size, seed=seed),
        optimizer=torch.optim.Adam(model.parameters(), lr=config.lr),
    )
    windows = torch.tensor(losses).view(-1, config.window).mean(1)
    tested = evaluate(model, data.x_test.view(-1, 8, 8), data.y_test)
    curve = tuple(rounded(v) for v in windows.tolist())
    return Outcome(norm, gain, batch_size, seed, curve, rounded(tested.accuracy))


def run(config: Config) -> Result:
    """Train every arm with every start at every batch size with every seed."""
    return Result(tuple(run_one(config, *job) for job in tqdm(config.jobs(), disable=None)))
