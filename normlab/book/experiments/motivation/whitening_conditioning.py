"""How many steps of gradient descent do standardizing and whitening save?"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from normlab.book.experiments.sweep import Seed, experiment
from normlab.whitening import make_covariance, whiten

Preparation = Literal["raw", "standardized", "whitened"]
PREPARATIONS: tuple[Preparation, ...] = ("raw", "standardized", "whitened")
Correlation = Annotated[float, Field(ge=0, lt=1)]
TOLERANCE = 1e-6  # the loss to reach, relative to the loss at the start


def check_rank(samples: int, features: int) -> None:
    """Refuse too few samples for a covariance of full rank."""
    if samples <= features:
        raise ValueError(
            f"samples: got {samples} for {features} features, whose covariance "
            f"cannot be inverted; expected at least {features + 1}"
        )


def make_correlated(
    samples: int, features: int, correlation: float, *, decades: float = 2.0, seed: int
) -> Tensor:
    """Draw Gaussian features with equal correlation and scales spread over powers of ten.

    The scales run over so many `decades`; the result, (samples, features), is float64.
    """
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(samples, 1, generator=generator, dtype=torch.float64)
    own = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    mixed = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    return mixed * torch.logspace(-decades / 2, decades / 2, features, dtype=torch.float64)


def condition_number(covariance: Tensor) -> float:
    """Largest over smallest eigenvalue; infinite where rounding leaves none above zero."""
    values = torch.linalg.eigvalsh(covariance)
    smallest, largest = values[0].item(), values[-1].item()
    return largest / smallest if smallest > 0 else math.inf


def prepare(x: Tensor, preparation: Preparation) -> tuple[Tensor, Tensor]:
    """Center `x` (N, C) and map it; also return the matrix (C, C) of the map."""
    centered = x - x.mean(0)
    if preparation == "raw":
        return centered, torch.eye(x.shape[1], dtype=x.dtype)
    if preparation == "standardized":
        rstd = 1 / centered.square().mean(0).sqrt()
        return centered * rstd, rstd.diag()
    if preparation == "whitened":
        y, _, matrix = whiten(x, "zca")
        return y, matrix
    raise ValueError(f"preparation: got {preparation!r}; expected one of {PREPARATIONS}")


def count_steps(covariance: Tensor, target: Tensor, *, tolerance: float, max_steps: int) -> int:
    """Steps of gradient descent from zero until the loss is `tolerance` times its first value.

    The loss is half the mean squared error of a linear model whose best coefficients are
    `target`; the learning rate is one over the largest eigenvalue.
    """
    curvature = covariance.numpy()
    lr = 1 / np.linalg.eigvalsh(curvature)[-1]
    error = -target.numpy()  # coefficients minus the best ones
    gradient = curvature @ error
    goal = tolerance * (error @ gradient)
    for step in range(max_steps):
        if error @ gradient <= goal:
            return step
        error = error - lr * gradient
        gradient = curvature @ error
    return max_steps


@experiment(
    preparation=PREPARATIONS,
    correlation=(0.0, 0.5, 0.9, 0.99),
    seed=range(3),
    condition=check_rank,
)
def whitening_conditioning(
    preparation: Preparation,
    correlation: Correlation,
    seed: Seed,
    *,
    features: PositiveInt = 32,
    samples: PositiveInt = 2048,
    max_steps: PositiveInt = 20000,
) -> dict[str, float]:
    """Descend on least squares with Gaussian features, whose scales run over a factor of a hundred.

    Args:
        preparation: of the features; "whitened" is ZCA.

    Returns:
        condition: largest over smallest eigenvalue of the covariance.
        steps: until the loss is a millionth of its first value; `max_steps` if it is not.
    """
    x = make_correlated(samples, features, correlation, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1000)
    # Coefficients of the standardized features: one function to learn for all preparations.
    standard = torch.randn(features, generator=generator, dtype=torch.float64)
    rstd = 1 / (x - x.mean(0)).square().mean(0).sqrt()
    y, matrix = prepare(x, preparation)
    covariance = make_covariance(y)
    target = torch.linalg.solve(matrix.T, rstd * standard)
    steps = count_steps(covariance, target, tolerance=TOLERANCE, max_steps=max_steps)
    return {"condition": condition_number(covariance), "steps": steps}
