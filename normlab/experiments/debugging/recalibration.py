"""Running statistics that lag behind, and how to recompute them without training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normlab.experiments.data.digits import load_digits_split
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.classifiers import make_mlp
from normlab.experiments.settings import Count, Index, Positive, Share
from normlab.experiments.training import evaluate, train_on_digits
from normlab.layers import BatchNorm1d, BatchNorm2d

_BATCH_NORMS = (BatchNorm1d, BatchNorm2d, nn.modules.batchnorm._BatchNorm)


@dataclass(frozen=True)
class Config:
    """A batch norm MLP on digits whose running statistics follow slowly."""

    momentum: Share = 0.001  #: weight of the new batch
    steps: Count = 100  #: of training
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of split, weights and order
    widths: tuple[Count, ...] = (64, 64, 64, 10)  #: sizes of the MLP
    batch_size: Count = 64  #: samples in a batch
    lr: Positive = 3e-3  #: of Adam


@torch.no_grad()
def recompute_statistics_(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replace all running statistics by plain averages over batches; all else stays.

    Layers see what they receive in training, since each batch norm uses the statistics of the batch
    meanwhile.

    Raises:
        ValueError: the model has no batch norm that keeps running statistics.
    """
    norms = [m for m in model.modules() if isinstance(m, _BATCH_NORMS) and m.track_running_stats]
    if not norms:
        raise ValueError("model: has no batch norm with running statistics; nothing to recompute")
    modes, momenta = [(m, m.training) for m in model.modules()], [n.momentum for n in norms]
    try:
        model.eval()  # dropout stays off
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain average
            norm.train()
        for x in batches:
            model(x)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, mode in modes:
            module.training = mode


def run_one(config: Config, seed: int) -> dict[str, float]:
    """Train one network and score it on the test digits with three kinds of statistics.

    Measures:
        running: accuracy with those of training.
        batch: with those of the test digits themselves.
        recomputed: with those of one pass over the training digits.
    """
    data = load_digits_split(seed)
    model = make_mlp(config.widths, "batch_norm", seed=seed)
    for module in model:
        if isinstance(module, BatchNorm1d):
            module.momentum = config.momentum
    adam = torch.optim.Adam(model.parameters(), lr=config.lr)
    train_on_digits(model, data, adam, steps=config.steps, batch_size=config.batch_size, seed=seed)
    running = evaluate(model, data.x_test, data.y_test).accuracy
    batch = evaluate(model, data.x_test, data.y_test, mode="train").accuracy
    recompute_statistics_(model, data.x_train[:1280].split(config.batch_size))
    recomputed = evaluate(model, data.x_test, data.y_test).accuracy
    return {"running": running, "batch": batch, "recomputed": recomputed}


run = Sweep(run_one, seed="seeds")
