"""When do the running statistics catch up with the network that they describe?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import make_mlp
from normlab.experiments.settings import Count, Index, Positive, Share
from normlab.experiments.training import evaluate, train_on_digits
from normlab.layers import BatchNorm1d


@dataclass(frozen=True)
class Config:
    """A batch norm MLP on digits, scored in both modes while it trains."""

    #: weight of the new batch in the running statistics; one network for each
    momenta: tuple[Share, ...] = (0.1, 0.01)
    #: steps after which the network is scored
    check_at: tuple[Index, ...] = (1, 3, 10, 30, 100, 200)
    #: each gives a split, initial weights and an order of batches
    seeds: tuple[Index, ...] = (0, 1, 2)
    widths: tuple[Count, ...] = (64, 128, 128, 10)  #: sizes of the MLP
    batch_size: Count = 128  #: samples in a training batch
    lr: Positive = 1e-3  #: of Adam


def run_one(config: Config, momentum: float, seed: int) -> list[dict[str, float]]:
    """Train one network and score it on the test digits on the way.

    Measures:
        step: updates so far.
        eval_loss: cross-entropy with running statistics.
        batch_loss: cross-entropy with the statistics of the test digits themselves.
    """
    data = load_digits_split(seed)
    model = make_mlp(config.widths, "batch_norm", seed=seed)
    for module in model:
        if isinstance(module, BatchNorm1d):
            module.momentum = momentum
    scores = []

    def score(step: int) -> None:
        if step in config.check_at:
            running = evaluate(model, data.x_test, data.y_test).loss
            batch = evaluate(model, data.x_test, data.y_test, mode="train").loss
            scores.append({"step": step, "eval_loss": running, "batch_loss": batch})

    adam = torch.optim.Adam(model.parameters(), lr=config.lr)
    steps, size = max(config.check_at), config.batch_size
    train_on_digits(model, data, adam, steps=steps, batch_size=size, seed=seed, after_step=score)
    return scores


run = Sweep(run_one, momentum="momenta", seed="seeds")
