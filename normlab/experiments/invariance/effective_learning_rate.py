"""Where does the effective learning rate of a normalized layer go, with and without decay?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from normlab.experiments.invariance.invariant_mlp import HIDDEN_NORMS, HiddenNorm, train_once
from normlab.experiments.recording import (
    read_outcomes,
    read_record,
)
from normlab.experiments.settings import Count, Index, NotNegative, Positive, check_settings

__all__ = [
    "Config",
    "Outcome",
    "Result",
    "equilibrium_norm",
    "equilibrium_rotation",
    "read_result",
    "run",
    "run_one",
]


def equilibrium_norm(lr: float, weight_decay: float, unit_gradient: float) -> float:
    r"""Length of an invariant weight at which decay and growth balance.

    .. math:: \lVert W \rVert^4 = \frac{\eta\, \lVert \tilde g \rVert^2}{\lambda (2 - \eta\lambda)}

    Args:
        lr: η.
        weight_decay: λ.
        unit_gradient: length of the gradient at a weight of length 1 with the same direction.

    Raises:
        ValueError: ηλ is not between 0 and 1.

    Source:
        derived in the chapter on invariance; the effective rate is that of vanlaarhoven2017l2.
    """
    rate = _decay_rate(lr, weight_decay)
    length: float = (lr * unit_gradient**2 / (weight_decay * (2 - rate))) ** 0.25
    return length


def equilibrium_rotation(lr: float, weight_decay: float) -> float:
    r"""Root mean square of the angle, in radians, by which a step turns the weight at balance.

    .. math:: \tan\theta = \frac{\sqrt{\eta\lambda (2 - \eta\lambda)}}{1 - \eta\lambda}
              \approx \sqrt{2 \eta \lambda}

    Args:
        lr: η.
        weight_decay: λ.

    Raises:
        ValueError: ηλ is not between 0 and 1.
    """
    rate = _decay_rate(lr, weight_decay)
    return math.atan(math.sqrt(rate * (2 - rate)) / (1 - rate))


def _decay_rate(lr: float, weight_decay: float) -> float:
    rate = lr * weight_decay
    if not 0 < rate < 1:
        raise ValueError(
            f"lr, weight_decay: got {lr}, {weight_decay}; expected a product between 0 and 1, "
            "without decay there is no balance"
        )
    return rate


@dataclass(frozen=True)
class Config:
    """The same network from starts of different lengths, with and without weight decay.

    Attributes:
        norms: arms.
        start_scales: factors of the initial hidden weights.
        weight_decays: λ of the hidden layers.
        seeds: of split, weights and order.
        widths: of the network.
        lr: η of plain SGD on the hidden layers.
        steps: updates.
        batch_size: samples in a batch.
        every: steps between two recorded values.
        window: last steps, over which the rotation is averaged.
    """

    norms: tuple[HiddenNorm, ...] = ("batch_norm", "layer_norm")
    start_scales: tuple[Positive, ...] = (0.3, 1.0, 3.0)
    weight_decays: tuple[NotNegative, ...] = (0.0, 0.02)
    seeds: tuple[Index, ...] = (0, 1, 2)
    widths: tuple[Count, ...] = (64, 32, 32, 10)
    lr: Positive = 0.5
    steps: Count = 800
    batch_size: Count = 64
    every: Count = 10
    window: Count = 300

    def __post_init__(self) -> None:
        check_settings(self)
        for norm in self.norms:
            if norm not in HIDDEN_NORMS:
                raise ValueError(f"norms: got {norm!r}; expected some of {', '.join(HIDDEN_NORMS)}")
        if self.lr <= 0:
            raise ValueError(f"lr: got {self.lr}; expected a positive number")
        if not all(0 <= self.lr * decay < 1 for decay in self.weight_decays):
            raise ValueError(
                f"weight_decays: got {self.weight_decays} with lr {self.lr}; expected "
                "0 <= lr * weight_decay < 1, or a step turns the weight around. Lower one of them"
            )
        if not 1 <= self.window <= self.steps:
            raise ValueError(
                f"window: got {self.window} for {self.steps} steps; expected 1 to steps"
            )


@dataclass(frozen=True)
class Outcome:
    """One training.

    Attributes:
        norm: arm.
        start_scale: of the hidden weights.
        weight_decay: λ.
        seed: of split, weights and order.
        effective_lrs: η / ‖W‖² of the first hidden matrix, every so many steps.
        start_norm: ‖W‖ before the first step.
        end_norm: ‖W‖, root of the mean square over the window.
        rotation: root mean square of the angle of a step over the window, in radians.
        predicted_end_norm: balance of decay and growth from the gradients of the window; 0.0
            without decay.
        shrank: steps after which the matrix was shorter than before.
        last_loss: mean training loss over the window.
    """

    norm: str
    start_scale: float
    weight_decay: float
    seed: int
    effective_lrs: tuple[float, ...]
    start_norm: float
    end_norm: float
    rotation: float
    predicted_end_norm: float
    shrank: int
    last_loss: float


@dataclass(frozen=True)
class Result:
    """All outcomes, and the steps at which the effective learning rates were taken."""

    recorded_steps: tuple[int, ...]
    outcomes: tuple[Outcome, ...]

    def of(self, norm: str, weight_decay: float) -> list[Outcome]:
        """Outcomes of one arm, over starts and seeds."""
        return [o for o in self.outcomes if (o.norm, o.weight_decay) == (norm, weight_decay)]

    def curves(self, norm: str, weight_decay: float, start_scale: float) -> list[Sequence[float]]:
        """Effective learning rates at the recorded steps, one row for each seed."""
        found = self.of(norm, weight_decay)
        return [o.effective_lrs for o in found if o.start_scale == start_scale]

    def spread(self, norm: str, weight_decay: float) -> float:
        """Longest over shortest weight at the end, over starts and seeds."""
        lengths = [o.end_norm for o in self.of(norm, weight_decay)]
        return max(lengths) / min(lengths)


def read_result(path: Path | str) -> Result:
    """Read a recorded run.

    Args:
        path: the JSON file.
    """
    steps = read_record(path)["result"]["recorded_steps"]
    return Result(tuple(steps), read_outcomes(path, Outcome))


def run_one(
    config: Config, norm: HiddenNorm, start_scale: float, weight_decay: float, seed: int
) -> Outcome:
    """Train one network."""
    done = train_once(
        config.widths,
        norm,
        seed=seed,
        lr=config.lr,
        steps=config.steps,
        batch_size=config.batch_size,
        weight_decay=weight_decay,
        start_scale=start_scale,
    )
    squares, window = done.squared_norms, config.window
    late = squares[-window:]
    # ‖g‖ at length 1 is ‖g‖ ‖W‖ at any length
    unit = [
        s * g
        for s, g in zip(squares[-window - 1 : -1], done.squared_gradients[-window:], strict=True)
    ]
    predicted = 0.0
    if weight_decay:
        predicted = equilibrium_norm(config.lr, weight_decay, (sum(unit) / window) ** 0.5)
    return Outcome(
        norm,
        start_scale,
        weight_decay,
        seed,
        tuple(config.lr / s for s in squares[:: config.every]),
        squares[0] ** 0.5,
        (sum(late) / window) ** 0.5,
        (sum(r * r for r in done.rotations[-window:]) / window) ** 0.5,
        predicted,
        sum(b < a for a, b in zip(squares[:-1], squares[1:], strict=True)),
        sum(done.losses[-window:]) / window,
    )


def run(config: Config) -> Result:
    """Train every norm from every start with every decay and seed."""
    arms = [
        (norm, start, decay, seed)
        for norm in config.norms
        for decay in config.weight_decays
        for start in config.start_scales
        for seed in config.seeds
    ]
    return Result(
        tuple(range(0, config.steps + 1, config.every)),
        tuple(run_one(config, *arm) for arm in tqdm(arms, disable=None)),
    )
