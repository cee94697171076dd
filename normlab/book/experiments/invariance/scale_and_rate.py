"""What becomes of the best learning rate, and of the test loss, if weights or data are scaled?"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import PositiveFloat
from torch.nn.functional import cross_entropy

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.invariance.invariant_mlp import WIDTHS, InvariantMLP
from normlab.book.experiments.networks.classifiers import FeatureNorm
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit

Scaled = Literal["data", "weights"]


@experiment(
    norm=("none", "layer_norm", "batch_norm"),
    scaled=("data", "weights"),
    factor=(0.1, 1.0, 10.0),
    lr=tuple(10.0 ** (i / 2) for i in range(-8, 7)),
    seed=range(3),
)
def scale_and_rate(
    norm: FeatureNorm,
    scaled: Scaled,
    factor: PositiveFloat,
    lr: PositiveFloat,
    seed: Seed,
    *,
    steps: Steps = 300,
) -> dict[str, Any]:
    """Train an MLP whose hidden layers have no bias and norms without eps, by SGD.

    The output layer, which nothing normalizes, learns at 0.1.

    Args:
        scaled: what is multiplied: all pixels, or the initial hidden weights.

    Returns:
        train_loss: mean over the last 20 steps.
        test_loss: on the 500 test digits as one batch, whose statistics batch norm takes.
        accuracy: there. All three are null for a run that is not finite.
    """
    data = load_digits_split(seed)
    pixels = factor if scaled == "data" else 1.0
    start = factor if scaled == "weights" else 1.0
    model = InvariantMLP(WIDTHS, norm, seed=seed, start_scale=start)
    groups = [
        {"params": list(model.hidden), "lr": lr},
        {"params": [model.output, model.output_bias], "lr": 0.1},
    ]
    batches = ((pixels * x.double(), y) for x, y in data.batches(128, seed))
    losses = fit(model, torch.optim.SGD(groups), batches, steps)
    with torch.no_grad():
        logits = model(pixels * data.x_test.double())
        loss = cross_entropy(logits, data.y_test)
    if len(losses) < steps or not loss.isfinite():
        return {"train_loss": None, "test_loss": None, "accuracy": None}
    right = (logits.argmax(-1) == data.y_test).double().mean().item()
    return {
        "train_loss": rounded(sum(losses[-20:]) / 20),
        "test_loss": rounded(loss.item()),
        "accuracy": right,
    }
