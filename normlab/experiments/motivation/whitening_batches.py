"""How large must a batch be before whitening with its statistics whitens anything else?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.motivation.whitening_conditioning import (
    condition_number,
    make_correlated,
    prepare,
)
from normlab.experiments.settings import Count, Index
from normlab.whitening import make_covariance

Treatment = Literal["standardized", "whitened"]


@dataclass(frozen=True)
class Config:
    """Statistics of a small batch, applied to many other samples of the same distribution."""

    #: "standardized" divides each feature by its standard deviation, "whitened" is ZCA
    treatments: tuple[Treatment, ...] = ("standardized", "whitened")
    #: samples behind the statistics; more than `features`
    batch_sizes: tuple[Count, ...] = (33, 40, 64, 128, 256, 1024)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of all samples
    features: Count = 32  #: C
    others: Count = 20000  #: samples that the statistics are applied to

    def __post_init__(self) -> None:
        if any(size <= self.features for size in self.batch_sizes):
            raise ValueError(
                f"batch_sizes: got {self.batch_sizes}; exact whitening of {self.features} "
                f"features needs batches of at least {self.features + 1}, or fewer features"
            )


def run_one(config: Config, treatment: Treatment, batch_size: int, seed: int) -> dict[str, float]:
    """Take the statistics of one batch and treat the other samples with them.

    The features are independent with variance one, so nothing needs to be whitened: all that
    is seen is the error of the estimate.

    Measures:
        condition: condition number of the covariance of the other samples after the treatment;
            1 is white.
        largest: their largest variance in any direction, where 1 is meant.
    """
    count = batch_size + config.others
    x = make_correlated(count, config.features, 0.0, decades=0.0, seed=seed)
    _, matrix = prepare(x[:batch_size], treatment)
    covariance = make_covariance(x[batch_size:] @ matrix.T)
    largest = torch.linalg.eigvalsh(covariance)[-1].item()
    return {"condition": condition_number(covariance), "largest": largest}


run = Sweep(run_one, treatment="treatments", batch_size="batch_sizes", seed="seeds")
