"""Two forms of one iteration for the inverse root: which of them survives rounding?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.motivation.whitening_conditioning import (
    Correlation,
    check_rank,
    condition_number,
    make_correlated,
    prepare,
)
from normlab.experiments.settings import Count, Index
from normlab.whitening import (
    make_covariance,
    newton_schulz_matrix,
    uncoupled_newton_schulz_matrix,
    zca_matrix,
)

Form = Literal["coupled", "uncoupled"]


@dataclass(frozen=True)
class Config:
    """Standardized Gaussian features of equal correlation, whitened by more and more steps."""

    forms: tuple[Form, ...] = ("coupled", "uncoupled")  #: of the iteration
    correlations: tuple[Correlation, ...] = (0.0, 0.5, 0.9, 0.99)  #: of every pair of features
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of the samples
    features: Count = 32  #: C
    samples: Count = 2048  #: N
    max_steps: Count = 24  #: the errors after 0 to so many steps are measured

    def __post_init__(self) -> None:
        check_rank(self)


def predicted_growth(condition: float) -> float:
    r"""Factor by which one step of the uncoupled form multiplies a rounding error.

    .. math:: |1 - (\sqrt\kappa + \kappa) / 2|

    Example:
        >>> round(predicted_growth(43.0), 1)
        23.8
    """
    return abs(1 - (math.sqrt(condition) + condition) / 2)


def relative_distance(matrix: Tensor, goal: Tensor) -> float | None:
    """Frobenius norm of the difference over that of `goal`, None if that is not finite."""
    distance = ((matrix - goal).norm() / goal.norm()).item()
    return distance if math.isfinite(distance) else None


def run_one(config: Config, form: Form, correlation: float, seed: int) -> dict[str, Any]:
    """Whiten one data set with every number of steps.

    Measures:
        condition: condition number of the covariance before whitening.
        errors: relative distance from the ZCA matrix after 0, 1, 2, ... steps; None where it is
            not a finite number.
    """
    x = make_correlated(config.samples, config.features, correlation, seed=seed)
    covariance = make_covariance(prepare(x, "standardized")[0])
    goal = zca_matrix(covariance)
    iterate = newton_schulz_matrix if form == "coupled" else uncoupled_newton_schulz_matrix
    steps = range(config.max_steps + 1)
    errors = tuple(relative_distance(iterate(covariance, steps=n), goal) for n in steps)
    return {"condition": condition_number(covariance), "errors": errors}


run = Sweep(run_one, form="forms", correlation="correlations", seed="seeds")
