"""How large must a batch be before whitening with its statistics whitens anything else?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from normlab.experiments.motivation.whitening_conditioning import condition_number, make_correlated
from normlab.experiments.settings import Count, Index, check_settings
from normlab.whitening import make_covariance, whiten

__all__ = ["Config", "Outcome", "Result", "run"]

Treatment = Literal["standardized", "whitened"]
TREATMENTS: tuple[Treatment, ...] = ("standardized", "whitened")


@dataclass(frozen=True)
class Config:
    """Statistics of a small batch, applied to many other samples of the same distribution.

    Attributes:
        treatments: "standardized" divides each feature by its standard deviation, "whitened"
            is ZCA.
        batch_sizes: samples behind the statistics; more than `features`.
        seeds: of all samples.
        features: C.
        others: samples that the statistics are applied to.
    """

    treatments: tuple[Treatment, ...] = TREATMENTS
    batch_sizes: tuple[Count, ...] = (33, 40, 64, 128, 256, 1024)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    features: Count = 32
    others: Count = 20000

    def __post_init__(self) -> None:
        check_settings(self)
        if set(self.treatments) - set(TREATMENTS) or not self.treatments:
            raise ValueError(f"treatments: got {self.treatments}; expected some of {TREATMENTS}")
        if min(self.batch_sizes, default=0) <= self.features:
            raise ValueError(
                f"batch_sizes: got {self.batch_sizes}; exact whitening of {self.features} "
                f"features needs batches of at least {self.features + 1}, or fewer features"
            )


@dataclass(frozen=True)
class Outcome:
    """Statistics of one batch.

    Attributes:
        treatment: what was done with them.
        batch_size: samples behind them.
        seed: of all samples.
        condition: condition number of the covariance of the other samples after the treatment;
            1 is white.
        largest: their largest variance in any direction, where 1 is meant.
    """

    treatment: str
    batch_size: int
    seed: int
    condition: float
    largest: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def values(self, measure: str, treatment: str, batch_size: int) -> list[float]:
        """One number for each seed."""
        return [
            getattr(o, measure)
            for o in self.outcomes
            if (o.treatment, o.batch_size) == (treatment, batch_size)
        ]


def _matrix(batch: Tensor, treatment: Treatment) -> Tensor:
    if treatment == "whitened":
        return whiten(batch, "zca").matrix
    return (1 / (batch - batch.mean(0)).square().mean(0).sqrt()).diag()


def run_one(config: Config, treatment: Treatment, batch_size: int, seed: int) -> Outcome:
    """Take the statistics of one batch and treat the other samples with them.

    The features are independent with variance one, so nothing needs to be whitened: all that
    is seen is the error of the estimate.
    """
    count = batch_size + config.others
    x = make_correlated(count, config.features, 0.0, decades=0.0, seed=seed)
    matrix = _matrix(x[:batch_size], treatment)
    covariance = make_covariance(x[batch_size:] @ matrix.T)
    largest = torch.linalg.eigvalsh(covariance)[-1].item()
    return Outcome(treatment, batch_size, seed, condition_number(covariance), largest)


def run(config: Config) -> Result:
    """Measure every treatment at every batch size with every seed."""
    return Result(
        tuple(
            run_one(config, treatment, batch_size, seed)
            for treatment in config.treatments
            for batch_size in config.batch_sizes
            for seed in config.seeds
        )
    )
