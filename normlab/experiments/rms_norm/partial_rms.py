"""How many features does pRMSNorm need: a part of them, or a number?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from tqdm import tqdm

from normlab.experiments.data.sequences import Task
from normlab.experiments.rms_norm import rms_quality
from normlab.experiments.settings import Count, Index, Positive, check_settings
from normlab.layers import prms_norm

__all__ = ["Config", "Outcome", "Result", "output_spread", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """The Pre-LN Transformer of :mod:`normlab.experiments.rms_norm.rms_quality` with pRMSNorm.

    Attributes:
        widths: D of each arm.
        parts: p of each arm, one for each width.
        seeds: of weights and batches.
        task: "reversal" or "sorting".
        layers: L.
        lr: learning rate.
        steps: updates.
    """

    widths: tuple[Count, ...] = (32, 32, 32, 32, 32, 64, 128)
    parts: tuple[float, ...] = (0.0625, 0.125, 0.25, 0.5, 1.0, 0.0625, 0.0625)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    task: Task = "reversal"
    layers: Count = 4
    lr: Positive = 2e-3
    steps: Count = 250

    def __post_init__(self) -> None:
        check_settings(self)
        if len(self.widths) != len(self.parts):
            raise ValueError(
                f"parts: got {len(self.parts)} for {len(self.widths)} widths; expected one for each"
            )
        if not all(0 < p <= 1 for p in self.parts):
            raise ValueError(f"parts: got {self.parts}; expected parts above 0 and at most 1")

    def arms(self) -> list[tuple[int, float]]:
        """Width and part of each arm."""
        return list(zip(self.widths, self.parts, strict=True))


@dataclass(frozen=True)
class Outcome:
    """One training run.

    Attributes:
        width: D.
        p: part of the features.
        used: k, the number of features that the mean square is taken from.
        seed: of weights and batches.
        learned_at: first step above 95 percent accuracy as a mean of ten steps; None if never.
        final_accuracy: of the last ten steps.
        spread: relative standard deviation over rows of the output's size, for independent
            normal features.
    """

    width: int
    p: float
    used: int
    seed: int
    learned_at: int | None
    final_accuracy: float
    spread: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def arm(self, width: int, p: float) -> list[Outcome]:
        """One outcome for each seed."""
        return [o for o in self.outcomes if (o.width, o.p) == (width, p)]


def output_spread(width: int, p: float, *, seed: int, rows: int = 4000) -> float:
    """Standard deviation over rows of the output's rms, divided by its mean.

    RMSNorm gives every row the rms 1, so a spread of 0. The input has independent normal
    features.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    size = prms_norm(x, (width,), eps=0.0, p=p).square().mean(-1).sqrt()
    return ((size - size.mean()).square().mean().sqrt() / size.mean()).item()


def run_one(config: Config, width: int, p: float, seed: int) -> Outcome:
    """Train one network."""
    settings = rms_quality.Config(
        layers=config.layers, width=width, p=p, lr=config.lr, steps=config.steps
    )
    trained = rms_quality.run_one(settings, config.task, "prms_norm", seed)
    return Outcome(
        width,
        p,
        math.ceil(round(p * width, 9)),
        seed,
        trained.learned_at,
        trained.accuracies[-1],
        output_spread(width, p, seed=seed),
    )


def run(config: Config) -> Result:
    """Train every arm with every seed."""
    jobs = [(width, p, seed) for width, p in config.arms() for seed in config.seeds]
    return Result(tuple(run_one(config, *job) for job in tqdm(jobs, disable=None)))
