"""How large must a batch be before whitening with its statistics whitens anything else?"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveInt

from normlab.book.experiments.motivation.whitening_conditioning import (
    condition_number,
    make_correlated,
    prepare,
)
from normlab.book.experiments.sweep import Seed, experiment
from normlab.whitening import make_covariance

Treatment = Literal["standardized", "whitened"]


def _check_rank(batch_size: int, features: int) -> None:
    if batch_size <= features:
        raise ValueError(
            f"batch_size: got {batch_size}; exact whitening of {features} features needs batches "
            f"of at least {features + 1}, or fewer features"
        )


@experiment(
    treatment=("standardized", "whitened"),
    batch_size=(33, 40, 64, 128, 256, 1024),
    seed=range(5),
    condition=_check_rank,
)
def whitening_batches(
    treatment: Treatment,
    batch_size: PositiveInt,
    seed: Seed,
    *,
    features: PositiveInt = 32,
    others: PositiveInt = 20000,
) -> dict[str, float]:
    """Take the statistics of one batch and treat other samples of its distribution with them.

    The features are independent with variance one, so nothing needs to be whitened: all that
    is seen is the error of the estimate.

    Args:
        treatment: "standardized" divides each feature by its standard deviation, "whitened" is ZCA.
        batch_size: samples behind the statistics; more than `features`.
        others: samples that the statistics are applied to.

    Returns:
        condition: condition number of the covariance of the other samples after the treatment;
            1 is white.
        largest: their largest variance in any direction, where 1 is meant.
    """
    x = make_correlated(batch_size + others, features, 0.0, decades=0.0, seed=seed)
    _, matrix = prepare(x[:batch_size], treatment)
    covariance = make_covariance(x[batch_size:] @ matrix.T)
    largest = torch.linalg.eigvalsh(covariance)[-1].item()
    return {"condition": condition_number(covariance), "largest": largest}
