"""Where does the effective learning rate of a normalized layer go, with and without decay?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.invariance.invariant_mlp import train_once
from normlab.experiments.networks.classifiers import FeatureNorm
from normlab.experiments.results import Result
from normlab.experiments.settings import (
    Count,
    Index,
    NotNegative,
    Positive,
    check_at_most,
    check_settings,
)


def equilibrium_norm(lr: float, weight_decay: float, unit_gradient: float) -> float:
    r"""Length of an invariant weight at which decay and growth balance.

    .. math:: \lVert W \rVert^4 = \frac{\eta\, \lVert \tilde g \rVert^2}{\lambda (2 - \eta\lambda)}

    with η the rate, λ the decay and g̃ the gradient at a weight of length 1 and the same direction.

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
    """The same network from starts of different lengths, with and without weight decay."""

    norms: tuple[FeatureNorm, ...] = ("batch_norm", "layer_norm")  #: of the hidden layers
    start_scales: tuple[Positive, ...] = (0.3, 1.0, 3.0)  #: factors of the initial hidden weights
    weight_decays: tuple[NotNegative, ...] = (0.0, 0.02)  #: λ of the hidden layers
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of split, weights and order
    widths: tuple[Count, ...] = (64, 32, 32, 10)  #: of the network
    lr: Positive = 0.5  #: η of plain SGD on the hidden layers
    steps: Count = 800  #: updates
    batch_size: Count = 64  #: samples in a batch
    every: Count = 10  #: steps between two recorded values
    window: Count = 300  #: last steps, over which the rotation is averaged

    def __post_init__(self) -> None:
        check_settings(self)
        if self.lr * max(self.weight_decays) >= 1:
            raise ValueError(
                f"weight_decays: got {self.weight_decays} with lr {self.lr}; expected "
                "lr * weight_decay < 1, or a step turns the weight around. Lower one of them"
            )
        check_at_most(self, "window", "steps")

    @property
    def recorded_steps(self) -> range:
        """Steps at which the effective learning rates are taken."""
        return range(0, self.steps + 1, self.every)


def run_one(
    config: Config, norm: FeatureNorm, start_scale: float, weight_decay: float, seed: int
) -> dict[str, Any]:
    """Train one network and follow its first hidden matrix W.

    Measures:
        effective_lrs: η / ‖W‖² every so many steps.
        start_norm: ‖W‖ before the first step.
        end_norm: ‖W‖, root of the mean square over the window.
        rotation: root mean square of the angle of a step over the window, in radians.
        predicted_end_norm: balance of decay and growth from the gradients of the window; 0.0
            without decay.
        shrank: steps after which the matrix was shorter than before.
        last_loss: mean training loss over the window.
    """
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
    # ‖g‖ at length 1 is ‖g‖ ‖W‖ at any length
    unit = [
        s * g
        for s, g in zip(squares[-window - 1 : -1], done.squared_gradients[-window:], strict=True)
    ]
    predicted = 0.0
    if weight_decay:
        predicted = equilibrium_norm(config.lr, weight_decay, (sum(unit) / window) ** 0.5)
    return {
        "effective_lrs": tuple(config.lr / s for s in squares[:: config.every]),
        "start_norm": squares[0] ** 0.5,
        "end_norm": (sum(squares[-window:]) / window) ** 0.5,
        "rotation": (sum(r * r for r in done.rotations[-window:]) / window) ** 0.5,
        "predicted_end_norm": predicted,
        "shrank": sum(b < a for a, b in pairwise(squares)),
        "last_loss": sum(done.losses[-window:]) / window,
    }


run = Sweep(
    run_one, norm="norms", weight_decay="weight_decays", start_scale="start_scales", seed="seeds"
)


def length_ratio(result: Result, norm: str, weight_decay: float) -> float:
    """Longest over shortest weight at the end, over starts and seeds."""
    shortest, _, longest = result.spread("end_norm", norm=norm, weight_decay=weight_decay)
    return longest / shortest
