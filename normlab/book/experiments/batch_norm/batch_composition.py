"""What if a batch is not a random sample, but holds only one or two classes?"""

from __future__ import annotations

import torch
from pydantic import PositiveInt

from normlab.book.experiments.data.batches import class_batches
from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import evaluate, fit


@experiment(norm=("none", "batch_norm", "layer_norm"), classes_per_batch=(10, 2, 1), seed=range(5))
def batch_composition(
    norm: FeatureNorm,
    classes_per_batch: PositiveInt,
    seed: Seed,
    *,
    steps: Steps = 240,
) -> dict[str, float]:
    """An MLP on digits whose batches hold only some of the ten classes.

    Args:
        classes_per_batch: distinct classes in each batch; 10 is close to a shuffled batch.

    Returns:
        train_loss: mean over the last 20 steps, in train mode.
        eval_accuracy: on the 500 shuffled test digits, with running statistics.
        batch_accuracy: the same with the statistics of all test digits together.
        class_accuracy: the same with the test digits of one class at a time as a batch.
    """
    data = load_digits_split(seed)
    model = make_mlp((64, 128, 128, 10), norm, seed=seed)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    chosen = class_batches(data.y_train, 40, classes_per_batch=classes_per_batch, seed=seed)
    losses = fit(model, adam, ((data.x_train[i], data.y_train[i]) for i in chosen), steps)
    x, y = data.x_test, data.y_test
    right = 0.0
    for label in y.unique():
        of_one = y == label
        alike = evaluate(model, x[of_one], y[of_one], mode="train")
        right += alike.accuracy * of_one.sum().item()
    return {
        "train_loss": sum(losses[-20:]) / 20,
        "eval_accuracy": evaluate(model, x, y).accuracy,
        "batch_accuracy": evaluate(model, x, y, mode="train").accuracy,
        "class_accuracy": right / len(y),
    }
