"""How many features does pRMSNorm need: a part of them, or a number?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from normlab.experiments.data.sequences import Task
from normlab.experiments.former_sweep import Sweep, grid
from normlab.experiments.rms_norm import rms_quality
from normlab.experiments.settings import Count, Index, Positive, check_one_for_each
from normlab.layers import prms_norm


@dataclass(frozen=True)
class Config:
    """The Pre-LN Transformer of :mod:`normlab.experiments.rms_norm.rms_quality` with pRMSNorm."""

    widths: tuple[Count, ...] = (32, 32, 32, 32, 32, 64, 128)  #: D of each network
    #: p of each network, one for each width
    parts: tuple[rms_quality.Part, ...] = (0.0625, 0.125, 0.25, 0.5, 1.0, 0.0625, 0.0625)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of weights and batches
    task: Task = "reversal"  #: on random tokens
    layers: Count = 4  #: L
    lr: Positive = 2e-3  #: learning rate
    steps: Count = 250  #: updates

    def __post_init__(self) -> None:
        check_one_for_each(self, "parts", of="widths")


def _points(config: Config) -> Iterator[dict[str, Any]]:
    for width, p in zip(config.widths, config.parts, strict=True):
        yield from grid(width=[width], p=[p], seed=config.seeds)


def output_spread(width: int, p: float, *, seed: int, rows: int = 4000) -> float:
    """Standard deviation over rows of the output's rms, divided by its mean.

    RMSNorm gives every row the rms 1, so a spread of 0. The input has independent normal
    features.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    size = prms_norm(x, (width,), eps=0.0, p=p).square().mean(-1).sqrt()
    return ((size - size.mean()).square().mean().sqrt() / size.mean()).item()


def run_one(config: Config, width: int, p: float, seed: int) -> dict[str, Any]:
    """Train one network.

    Measures:
        used: k, the number of features that the mean square is taken from.
        learned_at: first step above 95 percent accuracy as a mean of ten steps; None if never.
        final_accuracy: of the last ten steps.
        spread: relative standard deviation over rows of the output's size, for independent
            normal features.
    """
    settings = rms_quality.Config(layers=config.layers, width=width, p=p, steps=config.steps)
    trained = rms_quality.run_one(settings, config.task, "prms_norm", config.lr, seed)
    return {
        "used": math.ceil(round(p * width, 9)),
        "learned_at": trained["learned_at"],
        "final_accuracy": trained["accuracies"][-1],
        "spread": output_spread(width, p, seed=seed),
    }


run = Sweep(run_one, _points)
