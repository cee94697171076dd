"""How does a batch norm fare as the batch shrinks from 128 samples to 2?"""

from __future__ import annotations

import math

import torch
from pydantic import PositiveFloat, PositiveInt

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # tried at batch sizes from 32 up
SMALL_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # below 32, which want smaller ones


@experiment(
    norm=("none", "batch_norm", "layer_norm"),
    batch_size=(128, 32, 8, 4, 2),
    lr=(1e-4, *RATES),
    seed=range(5),
    skip=lambda batch_size, lr: lr not in (RATES if batch_size >= 32 else SMALL_RATES),
)
def batch_sizes(
    norm: FeatureNorm,
    batch_size: PositiveInt,
    lr: PositiveFloat,
    seed: Seed,
    *,
    epochs: PositiveInt = 4,
) -> dict[str, float | None]:
    """An MLP on digits, Adam, the same number of epochs at every batch size and learning rate.

    Args:
        lr: learning rate of Adam; the best one depends on the norm and on the batch size.

    Returns:
        train_loss: mean over the batches of the last epoch, in train mode; None for a run that
            diverged.
        fitted_loss: of the trained network on the training digits, with the statistics of all of
            them in place of those of a batch; None for a run that diverged.
        eval_accuracy: on the 500 test digits, with running statistics.
        eval_loss: cross-entropy there; None if it is not finite.
        batch_accuracy: on the test digits in batches of `batch_size`, with their statistics.
    """
    data = load_digits_split(seed)
    model = make_mlp((64, 128, 128, 10), norm, seed=seed)
    per_epoch = len(data.y_train) // batch_size
    steps = epochs * per_epoch
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = fit(model, optimizer, data.batches(batch_size, seed), steps)
    finished = len(losses) == steps and math.isfinite(losses[-1])
    fitted = evaluate(model, data.x_train, data.y_train, mode="train")
    tested = evaluate(model, data.x_test, data.y_test)
    in_batches = evaluate(model, data.x_test, data.y_test, mode="train", batch_size=batch_size)
    return {
        "train_loss": sum(losses[-per_epoch:]) / per_epoch if finished else None,
        "fitted_loss": fitted.loss if finished and math.isfinite(fitted.loss) else None,
        "eval_accuracy": tested.accuracy,
        "eval_loss": tested.loss if math.isfinite(tested.loss) else None,
        "batch_accuracy": in_batches.accuracy,
    }
