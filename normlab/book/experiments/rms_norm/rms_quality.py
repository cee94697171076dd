"""Does a Pre-LN Transformer learn as well with RMSNorm, in the same number of steps?"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from normlab.book.experiments.data.sequences import Task, sequence_batches
from normlab.book.experiments.networks.transformer import Transformer, make_transformer
from normlab.book.experiments.rms_norm.pre_rms_conversion import pre_norm_blocks
from normlab.book.experiments.sequence_training import make_optimizer, train_on_sequences
from normlab.book.experiments.sweep import Seed, experiment
from normlab.layers import RMSNorm, prms_norm

StreamNorm = Literal["layer_norm", "rms_norm", "prms_norm"]
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


def _make_model(norm: StreamNorm, layers: int, width: int, p: float, seed: int) -> Transformer:
    model = make_transformer(
        "pre_norm",
        layers=layers,
        seed=seed,
        norm="rms_norm" if norm == "prms_norm" else norm,
        width=width,
    )
    if norm == "prms_norm":
        for block in pre_norm_blocks(model):
            block.norm = PartialRMSNorm(width, p)
        model.norm = PartialRMSNorm(width, p)
    return model


@experiment(
    task=("reversal", "sorting"),
    norm=("layer_norm", "rms_norm"),
    lr=(1e-3, 3e-3, 1e-2),
    seed=range(5),
)
def rms_quality(
    task: Task,
    norm: StreamNorm,
    lr: PositiveFloat,
    seed: Seed,
    *,
    layers: PositiveInt = 4,
    width: PositiveInt = 32,
    p: Part = 0.0625,
    steps: Annotated[int, Field(ge=10)] = 250,
) -> dict[str, Any]:
    """Train a Pre-LN Transformer by Adam, without a warmup.

    Args:
        task: what is done to random tokens.
        p: part of the features that pRMSNorm uses.

    Returns:
        learned_at: first step at which the accuracy, as a mean of the last ten steps, is above
            0.95; None if there is none.
        final_loss: mean of the last 20 steps.
        accuracies: mean accuracy of each ten steps.
    """
    model = _make_model(norm, layers, width, p, seed)
    curve = train_on_sequences(
        model,
        sequence_batches(task, seed=1000 + seed),
        steps=steps,
        optimizer=make_optimizer(model, lr=lr),
    )
    accuracies = curve.accuracies
    smooth = [sum(accuracies[i - 10 : i]) / 10 for i in range(10, len(accuracies) + 1)]
    learned = (i + 10 for i, a in enumerate(smooth) if a > 0.95)
    return {
        "learned_at": next(learned, None),
        "final_loss": curve.final_loss(),
        "accuracies": smooth[::10],
    }
