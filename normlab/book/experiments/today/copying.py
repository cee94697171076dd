"""The task of the chapter's experiments: say a random text once more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from normlab.book.experiments.data.sequences import SequenceBatches
from normlab.book.experiments.networks.decoder import make_decoder
from normlab.book.experiments.networks.transformer import Transformer
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.training import fit


@dataclass(frozen=True)
class CopyTask:
    """Sizes of the task and of the decoder that learns it."""

    layers: int = 2
    width: int = 32
    heads: int = 2
    symbols: int = 16  #: number of different tokens
    length: int = 16  #: of the text that is repeated
    batch_size: int = 32

    def make_decoder(self, seed: int, **choices: Any) -> Transformer:
        """A decoder of these sizes; the choices are those of :func:`make_decoder`."""
        return make_decoder(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            vocabulary=self.symbols,
            length=2 * self.length,
            seed=seed,
            **choices,
        )

    def batches(self, seed: int) -> SequenceBatches:
        """Batches of these sizes; not the random numbers of the weights."""
        return copy_batches(
            symbols=self.symbols, length=self.length, batch_size=self.batch_size, seed=1000 + seed
        )


def copy_batches(*, symbols: int, length: int, batch_size: int, seed: int) -> SequenceBatches:
    """Yield random texts said twice, without the last token, and what follows each token.

    Args:
        length: T, of the text that is repeated.

    Shape:
        yields two (N, 2 T - 1) long tensors.

    Example:
        >>> x, y = next(copy_batches(symbols=9, length=3, batch_size=1, seed=0))
        >>> x.tolist(), y.tolist()
        ([[8, 0, 2, 8, 0]], [[0, 2, 8, 0, 2]])
    """
    generator = torch.Generator().manual_seed(seed)
    while True:
        once = torch.randint(symbols, (batch_size, length), generator=generator)
        twice = torch.cat([once, once], 1)
        yield twice[:, :-1], twice[:, 1:]


def copy_loss(model: nn.Module, batch: tuple[Tensor, Tensor], *, length: int) -> Tensor:
    """Mean cross-entropy of the second half, which can be known, in nats."""
    tokens, following = batch
    logits = model(tokens)[:, length - 1 :]
    return cross_entropy(logits.flatten(0, 1), following[:, length - 1 :].flatten())


def train_to_copy(
    model: nn.Module,
    optimizer: Optimizer,
    task: CopyTask,
    steps: int,
    *,
    seed: int,
    warmup: int = 0,
) -> float:
    """Train in place; the mean loss of the last 20 updates.

    The rate rises linearly over `warmup` updates. A loss that is larger than that of guessing all
    symbols alike, or not finite, counts as that.
    """
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(warmup, 1)))
    losses = fit(
        model,
        optimizer,
        task.batches(seed),
        steps,
        loss_of=partial(copy_loss, length=task.length),
        scheduler=scheduler,
    )
    last, guessing = sum(losses[-20:]) / len(losses[-20:]), math.log(task.symbols)
    return rounded(last if math.isfinite(last) and last < guessing else guessing)


def learn_to_copy(
    task: CopyTask, *, lr: float, steps: int, seed: int, warmup: int = 0, **choices: Any
) -> tuple[float, Transformer]:
    """Build one decoder and train it by Adam; the loss of :func:`train_to_copy`, and the model."""
    model = task.make_decoder(seed, **choices)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    return train_to_copy(model, optimizer, task, steps, seed=seed, warmup=warmup), model
