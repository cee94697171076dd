"""Running statistics that lag behind, and how to recompute them without training."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.layers import BatchNorm1d, BatchNorm2d

_BATCH_NORMS = (BatchNorm1d, BatchNorm2d, nn.modules.batchnorm._BatchNorm)


@torch.no_grad()
def recompute_statistics_(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replace all running statistics by plain averages over batches; all else stays.

    Each batch norm uses the statistics of the batch meanwhile. Dropout is off, so a norm behind it
    does not see what it received in training.

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


@experiment(seed=range(3))
def recalibration(seed: Seed) -> dict[str, float]:
    """Train an MLP whose statistics follow slowly; score it with three kinds of statistics.

    Returns:
        running: accuracy on the test digits with those of training.
        batch: with those of the test digits themselves.
        recomputed: with those of one pass over the training digits.
    """
    data = load_digits_split(seed)
    model = make_mlp((64, 64, 64, 10), "batch_norm", seed=seed)
    for module in model:
        if isinstance(module, BatchNorm1d):
            module.momentum = 0.001
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    fit(model, adam, data.batches(64, seed), 100)
    running = evaluate(model, data.x_test, data.y_test).accuracy
    batch = evaluate(model, data.x_test, data.y_test, mode="train").accuracy
    recompute_statistics_(model, data.x_train[:1280].split(64))
    recomputed = evaluate(model, data.x_test, data.y_test).accuracy
    return {"running": running, "batch": batch, "recomputed": recomputed}
