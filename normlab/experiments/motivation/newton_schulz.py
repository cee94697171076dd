"""Two forms of one iteration for the inverse root: which of them survives rounding?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from normlab.experiments.motivation.whitening_conditioning import (
    condition_number,
    make_correlated,
    prepare,
)
from normlab.experiments.settings import Count, Index, check_settings
from normlab.whitening import (
    make_covariance,
    newton_schulz_matrix,
    uncoupled_newton_schulz_matrix,
    zca_matrix,
)

__all__ = ["Config", "Outcome", "Result", "predicted_growth", "relative_distance", "run"]

FORMS = ("coupled", "uncoupled")


@dataclass(frozen=True)
class Config:
    """Standardized Gaussian features of equal correlation, whitened by more and more steps.

    Attributes:
        forms: "coupled" and "uncoupled".
        correlations: of every pair of features.
        seeds: of the samples.
        features: C.
        samples: N.
        max_steps: the errors after 0 to so many steps are measured.
    """

    forms: tuple[str, ...] = FORMS
    correlations: tuple[float, ...] = (0.0, 0.5, 0.9, 0.99)
    seeds: tuple[Index, ...] = (0, 1, 2)
    features: Count = 32
    samples: Count = 2048
    max_steps: Count = 24

    def __post_init__(self) -> None:
        check_settings(self)
        if set(self.forms) - set(FORMS) or not self.forms:
            raise ValueError(f"forms: got {self.forms}; expected some of {FORMS}")
        if not all(0 <= rho < 1 for rho in self.correlations):
            raise ValueError(
                f"correlations: got {self.correlations}; expected numbers from 0 to below 1"
            )
        if self.samples <= self.features:
            raise ValueError(
                f"samples: got {self.samples} for {self.features} features; "
                f"expected at least {self.features + 1}, so that the covariance has full rank"
            )
        if self.max_steps < 1:
            raise ValueError(f"max_steps: got {self.max_steps}; expected at least 1")


@dataclass(frozen=True)
class Outcome:
    """One form on one data set.

    Attributes:
        form: of the iteration.
        correlation: of every pair of features.
        seed: of the samples.
        condition: condition number of the covariance before whitening.
        errors: relative distance from the ZCA matrix after 0, 1, 2, ... steps; None where it is
            not a finite number.
    """

    form: str
    correlation: float
    seed: int
    condition: float
    errors: tuple[float | None, ...]


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def errors(self, form: str, correlation: float) -> list[list[float]]:
        """(seeds, steps + 1), with NaN where an error is not finite."""
        return [
            [math.nan if e is None else e for e in o.errors]
            for o in self.outcomes
            if (o.form, o.correlation) == (form, correlation)
        ]

    def conditions(self, correlation: float) -> list[float]:
        """Condition number of the covariance, one for each seed and form."""
        return [o.condition for o in self.outcomes if o.correlation == correlation]


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


def run_one(config: Config, form: str, correlation: float, seed: int) -> Outcome:
    """Whiten one data set with every number of steps."""
    x = make_correlated(config.samples, config.features, correlation, seed=seed)
    covariance = make_covariance(prepare(x, "standardized")[0])
    goal = zca_matrix(covariance)
    iterate = newton_schulz_matrix if form == "coupled" else uncoupled_newton_schulz_matrix
    return Outcome(
        form,
        correlation,
        seed,
        condition_number(covariance),
        tuple(
            relative_distance(iterate(covariance, steps=steps), goal)
            for steps in range(config.max_steps + 1)
        ),
    )


def run(config: Config) -> Result:
    """Whiten every data set in both forms."""
    return Result(
        tuple(
            run_one(config, form, correlation, seed)
            for form in config.forms
            for correlation in config.correlations
            for seed in config.seeds
        )
    )
