"""How many features does pRMSNorm need: a part of them, or a number?"""

from __future__ import annotations

import math
from typing import Any

from pydantic import PositiveInt

from normlab.book.experiments.rms_norm import rms_quality
from normlab.book.experiments.sweep import Seed, Steps, experiment


@experiment(
    width=(32, 64, 128),
    p=(0.0625, 0.125, 0.25, 0.5, 1.0),
    seed=range(5),
    # all parts of the narrowest network, of wider ones the smallest
    skip=lambda width, p: width > 32 and p > 0.0625,
)
def partial_rms(
    width: PositiveInt, p: rms_quality.Part, seed: Seed, *, steps: Steps = 250
) -> dict[str, Any]:
    """Train the Transformer of :mod:`normlab.book.experiments.rms_norm.rms_quality` with pRMSNorm.

    Args:
        p: part of the features that the mean square is taken from.

    Returns:
        used: k, the number of features that the mean square is taken from.
        learned_at: first step above 95 percent accuracy as a mean of ten steps; None if never.
        final_accuracy: of the last ten steps.
    """
    trained = rms_quality.rms_quality(
        "reversal", "prms_norm", 2e-3, seed, layers=4, width=width, p=p, steps=steps
    )
    return {
        "used": math.ceil(round(p * width, 9)),
        "learned_at": trained["learned_at"],
        "final_accuracy": trained["accuracies"][-1],
    }
