"""Does the noise of a batch norm narrow the gap between training and test?

The batch that the optimizer sees stays the same; only the number of samples that share
statistics changes (Ghost BatchNorm), so the noise is the only thing that moves. Every number is
tried at several learning rates.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import NonNegativeInt, PositiveFloat
from torch import Tensor, nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import evaluate, fit
from normlab.layers import BatchNorm1d, BatchNorm2d


class GhostBatchNorm(nn.Module):
    """Batch norm whose statistics come from parts of `ghost_size` samples of each training batch.

    Source:
        hoffer2017train, Algorithm 1.
    """

    def __init__(self, norm: nn.Module, ghost_size: int) -> None:
        super().__init__()
        self.norm = norm
        self.ghost_size = ghost_size

    def forward(self, input: Tensor) -> Tensor:
        """Normalize each part by itself in training, all alike in evaluation."""
        if not self.training:
            y: Tensor = self.norm(input)
            return y
        return torch.cat([self.norm(part) for part in input.split(self.ghost_size)])


def with_ghosts(model: nn.Sequential, ghost_size: int) -> nn.Sequential:
    """The same network with ghost batch norms for its batch norms."""
    layers = [
        GhostBatchNorm(m, ghost_size) if isinstance(m, BatchNorm1d | BatchNorm2d) else m
        for m in model
    ]
    return nn.Sequential(*layers)


@experiment(ghost_size=(0, 128, 32, 8, 4, 2), lr=(3e-4, 1e-3, 3e-3, 1e-2), seed=range(5))
def noise_and_gap(
    ghost_size: NonNegativeInt, lr: PositiveFloat, seed: Seed, *, steps: Steps = 200
) -> dict[str, float]:
    """A small training set that every network learns by heart, and all other digits for testing.

    Args:
        ghost_size: samples that share statistics; the batch size itself is plain batch
            norm, 0 is no norm at all.

    Returns:
        train_accuracy: on the digits that it was trained on.
        test_accuracy: on the 500 test digits.
        noisy_accuracy: on the test digits with noise on their pixels.
        train_loss: cross-entropy on the training digits.
        test_loss: cross-entropy on the test digits.
    """
    data = load_digits_split(seed)
    kept = slice(256)
    data = replace(data, x_train=data.x_train[kept], y_train=data.y_train[kept])
    model = make_mlp((64, 128, 128, 10), "batch_norm" if ghost_size else "none", seed=seed)
    model = with_ghosts(model, ghost_size)
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    fit(model, adam, data.batches(128, seed), steps)
    seen = evaluate(model, data.x_train, data.y_train)
    unseen = evaluate(model, data.x_test, data.y_test)
    generator = torch.Generator().manual_seed(seed)
    noise = 0.3 * torch.randn(data.x_test.shape, generator=generator)
    noisy = evaluate(model, data.x_test + noise, data.y_test)
    return {
        "train_accuracy": seen.accuracy,
        "test_accuracy": unseen.accuracy,
        "noisy_accuracy": noisy.accuracy,
        "train_loss": seen.loss,
        "test_loss": unseen.loss,
    }
