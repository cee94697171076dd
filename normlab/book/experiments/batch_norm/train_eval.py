"""When do the running statistics catch up with the network that they describe?"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, NonNegativeInt

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.layers import BatchNorm1d


@experiment(momentum=(0.1, 0.01), seed=range(3))
def train_eval(
    momentum: Annotated[float, Field(ge=0, le=1)],
    seed: Seed,
    *,
    check_at: tuple[NonNegativeInt, ...] = (1, 3, 10, 30, 100, 200),
) -> list[dict[str, float]]:
    """A batch norm MLP on digits, scored in both modes while it trains.

    Args:
        momentum: weight of the new batch in the running statistics; one network for each.
        check_at: steps after which the network is scored.

    Returns:
        step: updates so far.
        eval_loss: cross-entropy with running statistics.
        batch_loss: cross-entropy with the statistics of the test digits themselves.
    """
    data = load_digits_split(seed)
    model = make_mlp((64, 128, 128, 10), "batch_norm", seed=seed)
    for module in model:
        if isinstance(module, BatchNorm1d):
            module.momentum = momentum
    scores = []

    def score(step: int) -> None:
        if step in check_at:
            running = evaluate(model, data.x_test, data.y_test).loss
            batch = evaluate(model, data.x_test, data.y_test, mode="train").loss
            scores.append({"step": step, "eval_loss": running, "batch_loss": batch})

    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    fit(model, adam, data.batches(128, seed), max(check_at), after_step=score)
    return scores
