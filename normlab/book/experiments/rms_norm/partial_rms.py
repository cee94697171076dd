"""How many features does pRMSNorm need: a part of them, or a number?"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, PositiveInt
from torch import Tensor

from normlab.book.experiments.data.sequences import sequence_batches
from normlab.book.experiments.networks.transformer import Transformer, make_transformer
from normlab.book.experiments.rms_norm.pre_rms_conversion import pre_norm_blocks
from normlab.book.experiments.sequence_training import make_optimizer, train_on_sequences
from normlab.book.experiments.sweep import Seed, experiment
from normlab.layers import RMSNorm, prms_norm

Part = Annotated[float, Field(gt=0, le=1)]


class PartialRMSNorm(RMSNorm):
    """RMSNorm whose mean square comes from the first features only, their part p.

    Source:
        zhang2019root, Section 5.
    """

    def __init__(self, num_features: int, p: float) -> None:
        super().__init__(num_features)
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        return prms_norm(input, self.normalized_shape, self.weight, self.eps, self.p)


def _make_model(width: int, p: float, seed: int) -> Transformer:
    model = make_transformer("pre_norm", layers=4, seed=seed, norm="rms_norm", width=width)
    for block in pre_norm_blocks(model):
        block.norm = PartialRMSNorm(width, p)
    model.norm = PartialRMSNorm(width, p)
    return model


@experiment(
    width=(32, 64, 128),
    p=(0.0625, 0.125, 0.25, 0.5, 1.0),
    seed=range(5),
    # all parts of the narrowest network, of wider ones the smallest
    skip=lambda width, p: width > 32 and p > 0.0625,
)
def partial_rms(
    width: PositiveInt, p: Part, seed: Seed, *, steps: Annotated[int, Field(ge=10)] = 250
) -> dict[str, Any]:
    """Train a Pre-LN Transformer of four layers with pRMSNorm to reverse random tokens, by Adam.

    Args:
        p: part of the features that the mean square is taken from.

    Returns:
        used: k, the number of features that the mean square is taken from.
        learned_at: first step above 95 percent accuracy as a mean of ten steps; None if never.
        final_accuracy: of the last ten steps.
    """
    model = _make_model(width, p, seed)
    curve = train_on_sequences(
        model,
        sequence_batches(seed=1000 + seed),
        steps=steps,
        optimizer=make_optimizer(model, lr=2e-3),
    )
    accuracies = curve.accuracies
    smooth = [sum(accuracies[i - 10 : i]) / 10 for i in range(10, len(accuracies) + 1)]
    return {
        "used": math.ceil(round(p * width, 9)),
        "learned_at": next((i + 10 for i, a in enumerate(smooth) if a > 0.95), None),
        "final_accuracy": smooth[::10][-1],
    }
