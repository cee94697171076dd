"""How does the input of one sigmoid move while a network trains, each at its best rate?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.motivation import shifting_inputs
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Count, Index, Positive, Several, check_settings

Group = Literal["none", "batch_norm"]


@dataclass(frozen=True)
class Config:
    """Sigmoid networks on digits, plain SGD, both groups at every learning rate."""

    #: the plain network, and one with a batch norm before each sigmoid
    groups: tuple[Group, ...] = ("none", "batch_norm")
    #: learning rates of SGD without momentum
    lrs: tuple[Positive, ...] = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of split, weights and batches
    depth: Several = 3  #: hidden layers of 100 units
    batch_size: Count = 60  #: digits in a batch
    steps: Count = 1000  #: updates
    every: Count = 20  #: steps between two looks
    unit: Index = 0  #: of the last hidden layer, whose percentiles are kept
    #: a run is solved once the mean loss of ten steps falls below this
    solved_below: Positive = 0.5

    def __post_init__(self) -> None:
        check_settings(self)
        self.at(self.lrs[0])  # unit, every and steps have to fit together there

    def at(self, lr: float) -> shifting_inputs.Config:
        """Settings of the network at one learning rate."""
        return shifting_inputs.Config(
            lr=lr,
            momentum=0.0,
            depth=self.depth,
            batch_size=self.batch_size,
            steps=self.steps,
            every=self.every,
            unit=self.unit,
        )


def run_one(config: Config, group: Group, lr: float, seed: int) -> dict[str, Any]:
    """Train one network and watch one unit.

    Measures:
        steps_to_solve: first step whose last ten losses average below `solved_below`, or None.
        steps: of the looks; the first is 0, before training.
        accuracy: on the 500 test digits at each look, in eval mode.
        percentiles: (3, looks): 15th, 50th and 85th of the unit's input, over 500 digits.
    """
    settings = config.at(lr)
    watched = shifting_inputs.train_and_watch(settings, group, seed)
    losses, below = watched.losses, 10 * config.solved_below
    solved = (i for i in range(10, len(losses) + 1) if sum(losses[i - 10 : i]) < below)
    return {
        "steps_to_solve": next(solved, None),
        "steps": tuple(range(0, config.every * len(watched.accuracy), config.every)),
        "accuracy": tuple(map(rounded, watched.accuracy)),
        "percentiles": shifting_inputs.summarize(watched.looks, settings)["percentiles"],
    }


run = Sweep(run_one, group="groups", lr="lrs", seed="seeds")
