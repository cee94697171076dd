"""How long must a warmup be, and does a longer one allow a larger rate?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

from normlab import schedules
from normlab.experiments import sequence_training
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import Placement
from normlab.experiments.settings import Count, Index, Positive, check_settings
from normlab.experiments.warmup.warmup_need import SOLVED


@dataclass(frozen=True)
class Config:
    """Transformers on reversal, every length of the warmup at every rate."""

    placements: tuple[Placement, ...] = ("post_norm", "pre_norm")  #: of the norm
    #: updates of the linear warmup; 0 starts at the peak
    lengths: tuple[Index, ...] = (0, 10, 30, 100, 300)
    lrs: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2, 3e-2)  #: peaks, of Adam
    #: each gives weights and batches, the same for every other setting
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    layers: Count = 6  #: L
    #: updates; a run that has solved its task (mean accuracy of 20 steps in a row above 0.95) stops
    #: there
    steps: Count = 600

    def __post_init__(self) -> None:
        check_settings(self)
        if max(self.lengths) > self.steps:
            raise ValueError(
                f"lengths: got {max(self.lengths)}; expected at most {self.steps}, the steps"
            )


def run_one(
    config: Config, placement: Placement, length: int, lr: float, seed: int
) -> dict[str, Any]:
    """Train one network until it solves the task.

    Measures:
        steps: updates that were made.
        solved: 20 steps in a row had a mean accuracy above 0.95; the run stopped there.
        final_loss: mean of the last 20 updates.
    """
    settings = sequence_training.Config(
        placement=placement, layers=config.layers, steps=config.steps, lr=lr, seed=seed
    )
    curve = sequence_training.run(
        settings,
        scheduler_factory=lambda o: schedules.constant(o, warmup_steps=length),
        stop_above=SOLVED,
    )
    return {
        "steps": len(curve.losses),
        "solved": curve.final_accuracy() > SOLVED,
        "final_loss": round(curve.final_loss(), 4),
    }


run = Sweep(run_one, placement="placements", length="lengths", lr="lrs", seed="seeds")


def at_best_rate(result: Any, placement: Placement, length: int) -> tuple[float, list[float]]:
    """The rate that solves the task with most seeds, and among those soonest.

    Returns:
        The rate, and for each seed the updates that it took; infinite where it failed.
    """
    taken: dict[float, list[float]] = {}
    for o in result.of(placement=placement, length=length):
        taken.setdefault(o.lr, []).append(o.steps if o.solved else math.inf)
    best = min(taken, key=lambda lr: (taken[lr].count(math.inf), median(taken[lr])))
    return best, taken[best]
