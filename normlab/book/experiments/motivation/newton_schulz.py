"""Two forms of one iteration for the inverse root: which of them survives rounding?"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import PositiveInt
from torch import Tensor

from normlab.book.experiments.motivation.whitening_conditioning import (
    Correlation,
    condition_number,
    make_correlated,
    prepare,
)
from normlab.book.experiments.sweep import Seed, experiment
from normlab.whitening import (
    make_covariance,
    newton_schulz_matrix,
    uncoupled_newton_schulz_matrix,
    zca_matrix,
)

Form = Literal["coupled", "uncoupled"]


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


@experiment(form=("coupled", "uncoupled"), correlation=(0.0, 0.5, 0.9, 0.99), seed=range(3))
def newton_schulz(
    form: Form,
    correlation: Correlation,
    seed: Seed,
    *,
    max_steps: PositiveInt = 24,
) -> dict[str, Any]:
    """Whiten 2,048 samples of 32 standardized Gaussian features with every number of steps.

    Args:
        max_steps: the errors after 0 to so many steps are measured.

    Returns:
        condition: condition number of the covariance before whitening.
        errors: relative distance from the ZCA matrix after 0, 1, 2, ... steps; None where it is
            not a finite number.
    """
    x = make_correlated(2048, 32, correlation, seed=seed)
    covariance = make_covariance(prepare(x, "standardized")[0])
    goal = zca_matrix(covariance)
    iterate = newton_schulz_matrix if form == "coupled" else uncoupled_newton_schulz_matrix
    steps = range(max_steps + 1)
    errors = [relative_distance(iterate(covariance, steps=n), goal) for n in steps]
    return {"condition": condition_number(covariance), "errors": errors}
