"""Where does the effective learning rate of a normalized layer go, with and without decay?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field, PositiveFloat, PositiveInt

from normlab.book.experiments.invariance.invariant_mlp import WIDTHS, train_once
from normlab.book.experiments.networks.classifiers import FeatureNorm
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.tables import where

LR = 0.5  # η of plain SGD on the hidden layers
BLOCK = 50  # steps, over which the angles and the loss at the end are averaged


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


def _root_mean_square(numbers: Sequence[float]) -> float:
    return (sum(number * number for number in numbers) / len(numbers)) ** 0.5


def _check_window(window: int, steps: int) -> None:
    if window > steps:
        raise ValueError(f"window: got {window}; expected at most {steps}, all steps")


@experiment(
    norm=("batch_norm", "layer_norm"),
    weight_decay=(0.0, 0.02),
    start_scale=(0.3, 1.0, 3.0),
    schedule=("fixed", "falling"),
    seed=range(3),
    condition=_check_window,
)
def effective_learning_rate(
    norm: FeatureNorm,
    weight_decay: Annotated[float, Field(ge=0, lt=1 / LR)],
    start_scale: PositiveFloat,
    schedule: Literal["fixed", "falling"],
    seed: Seed,
    *,
    steps: Steps = 800,
    window: PositiveInt = 300,
) -> dict[str, Any]:
    """Train one network and follow its first hidden matrix W.

    Args:
        weight_decay: λ of the hidden layers; with ηλ of 1 or more a step turns the weight around.
        start_scale: factor of the initial hidden weights.
        schedule: the rate stays, or falls linearly to zero over the second half of the steps.
        window: last steps, over which the rotation is averaged.

    Returns:
        effective_lrs: η / ‖W‖² before the first step and every ten steps, η as at the start.
        start_norm: ‖W‖ before the first step.
        end_norm: ‖W‖, root of the mean square over the window.
        rotation: root mean square of the angle of a step over the window, in radians.
        rotations: the same over each block of 50 steps.
        single_rotations: smallest and largest angle of one step within the window.
        predicted_end_norm: balance of decay and growth at the first rate, from the gradients of the
            window; 0.0 without decay.
        shrank: steps after which the matrix was shorter than before.
        last_loss: mean training loss over the window.
        end_loss: the same over the last 50 steps.
    """
    done = train_once(
        WIDTHS,
        norm,
        seed=seed,
        lr=LR,
        steps=steps,
        batch_size=64,
        weight_decay=weight_decay,
        start_scale=start_scale,
        lr_growth=lambda step: min(1.0, 2 - 2 * step / steps) if schedule == "falling" else 1.0,
    )
    squares = done.squared_norms
    # ‖g‖ at length 1 is ‖g‖ ‖W‖ at any length
    unit = [
        s * g
        for s, g in zip(squares[-window - 1 : -1], done.squared_gradients[-window:], strict=True)
    ]
    turns = done.rotations
    predicted = 0.0
    if weight_decay:
        predicted = equilibrium_norm(LR, weight_decay, (sum(unit) / window) ** 0.5)
    return {
        "effective_lrs": [LR / s for s in squares[::10]],
        "start_norm": squares[0] ** 0.5,
        "end_norm": (sum(squares[-window:]) / window) ** 0.5,
        "rotation": _root_mean_square(turns[-window:]),
        "rotations": [_root_mean_square(turns[i : i + BLOCK]) for i in range(0, steps, BLOCK)],
        "single_rotations": [min(turns[-window:]), max(turns[-window:])],
        "predicted_end_norm": predicted,
        "shrank": sum(b < a for a, b in pairwise(squares)),
        "last_loss": sum(done.losses[-window:]) / window,
        "end_loss": sum(done.losses[-BLOCK:]) / len(done.losses[-BLOCK:]),
    }


def length_ratio(table: pd.DataFrame, norm: str, weight_decay: float) -> float:
    """Longest over shortest weight at the end, over starts and seeds."""
    lengths = where(table, norm=norm, weight_decay=weight_decay).end_norm
    return float(lengths.max() / lengths.min())
