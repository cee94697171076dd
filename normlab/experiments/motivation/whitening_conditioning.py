"""How many steps of gradient descent do standardizing and whitening save?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.settings import Bounds, Count, Index
from normlab.whitening import make_covariance, whiten

Preparation = Literal["raw", "standardized", "whitened"]
PREPARATIONS: tuple[Preparation, ...] = ("raw", "standardized", "whitened")
Correlation = Annotated[float, Bounds(0, math.nextafter(1, 0), "a number from 0 to below 1")]
Tolerance = Annotated[
    float, Bounds(math.nextafter(0, 1), math.nextafter(1, 0), "a number between 0 and 1")
]


def check_rank(config: Any) -> None:
    """Refuse too few samples for a covariance of full rank, in a `__post_init__`."""
    if config.samples <= config.features:
        raise ValueError(
            f"samples: got {config.samples} for {config.features} features, whose covariance "
            f"cannot be inverted; expected at least {config.features + 1}"
        )


@dataclass(frozen=True)
class Config:
    """Least squares on Gaussian features of different scales and equal correlation."""

    preparations: tuple[Preparation, ...] = PREPARATIONS  #: of the features; "whitened" is ZCA
    correlations: tuple[Correlation, ...] = (0.0, 0.5, 0.9, 0.99)  #: of every pair of features
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of the samples and of the true coefficients
    features: Count = 32  #: C
    samples: Count = 2048  #: N
    decades: float = 2.0  #: the scales of the features run over so many powers of ten
    tolerance: Tolerance = 1e-6  #: the loss to reach, relative to the loss at the start
    max_steps: Count = 20000  #: where a run is given up

    def __post_init__(self) -> None:
        check_rank(self)


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


def run_one(
    config: Config, preparation: Preparation, correlation: float, seed: int
) -> dict[str, float]:
    """Prepare one data set and descend on it.

    Measures:
        condition: largest over smallest eigenvalue of the covariance.
        steps: until the tolerance is reached; `max_steps` if it is not.
    """
    x = make_correlated(
        config.samples, config.features, correlation, decades=config.decades, seed=seed
    )
    generator = torch.Generator().manual_seed(seed + 1000)
    # Coefficients of the standardized features: one function to learn for all preparations.
    standard = torch.randn(config.features, generator=generator, dtype=torch.float64)
    rstd = 1 / (x - x.mean(0)).square().mean(0).sqrt()
    y, matrix = prepare(x, preparation)
    covariance = make_covariance(y)
    target = torch.linalg.solve(matrix.T, rstd * standard)
    steps = count_steps(covariance, target, tolerance=config.tolerance, max_steps=config.max_steps)
    return {"condition": condition_number(covariance), "steps": steps}


run = Sweep(run_one, preparation="preparations", correlation="correlations", seed="seeds")
