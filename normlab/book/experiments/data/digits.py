"""Real data that needs no download: scikit-learn's 1797 handwritten digits of 8 by 8 pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from normlab.book.experiments.data.batches import shuffled_batches

TEST_SIZE = 500


@dataclass(frozen=True)
class DigitsSplit:
    """Digits divided into a training and a test part."""

    x_train: Tensor  #: (1297, 64), float32 pixels between 0 and 1
    y_train: Tensor  #: (1297,), long labels 0 to 9
    x_test: Tensor  #: (500, 64)
    y_test: Tensor  #: (500,)

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield training pixels and labels for ever, reshuffled each epoch."""
        for chosen in shuffled_batches(len(self.y_train), batch_size, seed=seed):
            yield self.x_train[chosen], self.y_train[chosen]

    def as_images(self) -> DigitsSplit:
        """The same split with pixels as (n, 1, 8, 8)."""
        return replace(
            self, x_train=self.x_train.view(-1, 1, 8, 8), x_test=self.x_test.view(-1, 1, 8, 8)
        )


@cache
def _pixels_and_labels() -> tuple[Tensor, Tensor]:
    data = load_digits()
    pixels = torch.tensor(data.data, dtype=torch.float32) / 16  # stored as 0 to 16
    return pixels, torch.tensor(data.target, dtype=torch.long)


def load_digits_split(seed: int) -> DigitsSplit:
    """Shuffle the digits with `seed` and keep the last 500 for testing.

    Returns:
        A fresh copy, so nothing that a caller does to it reaches the next caller.

    Conventions:
        pixels divided by 16, their largest possible value; not standardized.

    Source:
        the test part of the UCI set "Optical Recognition of Handwritten Digits", as shipped
        with scikit-learn.

    Example:
        >>> split = load_digits_split(0)
        >>> tuple(split.x_train.shape), tuple(split.x_test.shape)
        ((1297, 64), (500, 64))
    """
    pixels, labels = _pixels_and_labels()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, test = order[:-TEST_SIZE], order[-TEST_SIZE:]
    return DigitsSplit(pixels[train], labels[train], pixels[test], labels[test])
