"""The task of the chapter's experiments: say a random text once more."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from normlab.experiments.data.sequences import SequenceBatches
from normlab.experiments.networks.decoder import Decoder, make_decoder
from normlab.experiments.recording import rounded


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


def copy_loss(model: Decoder, batch: tuple[Tensor, Tensor], length: int) -> Tensor:
    """Mean cross-entropy of the second half, which can be known, in nats."""
    tokens, following = batch
    logits = model(tokens)[:, length - 1 :]
    return cross_entropy(logits.flatten(0, 1), following[:, length - 1 :].flatten())


def train_to_copy(
    model: Decoder,
    batches: SequenceBatches,
    *,
    length: int,
    lr: float,
    steps: int,
    warmup: int = 0,
    guessing: float,
) -> float:
    """Train in place by Adam; the mean loss of the last 20 updates.

    Args:
        guessing: loss of guessing all symbols alike; a larger loss, or one that is not finite,
            counts as that.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(warmup, 1)))
    losses = []
    for _ in range(steps):
        loss = copy_loss(model, next(batches), length)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    last = sum(losses[-20:]) / len(losses[-20:])
    return float(rounded(last if math.isfinite(last) and last < guessing else guessing))


def learn_to_copy(
    config: Any, *, lr: float, seed: int, warmup: int = 0, **choices: Any
) -> tuple[float, Decoder]:
    """Build and train one decoder of an experiment of this chapter.

    Args:
        config: has the sizes layers, width, heads, symbols, length, batch_size and steps.
        lr: learning rate, after the warmup.
        seed: of the weights; the texts are drawn from another.
        warmup: see :func:`train_to_copy`.
        choices: of :func:`normlab.experiments.networks.decoder.make_decoder`.

    Returns:
        the loss, see :func:`train_to_copy`, and the trained decoder.
    """
    model = make_decoder(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        vocabulary=config.symbols,
        length=2 * config.length,
        seed=seed,
        **choices,
    )
    batches = copy_batches(
        symbols=config.symbols,
        length=config.length,
        batch_size=config.batch_size,
        seed=1000 + seed,
    )
    loss = train_to_copy(
        model,
        batches,
        length=config.length,
        lr=lr,
        steps=config.steps,
        warmup=warmup,
        guessing=math.log(config.symbols),
    )
    return loss, model
