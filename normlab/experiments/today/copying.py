"""The task of the chapter's experiments: say a random text once more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from normlab.experiments.data.sequences import SequenceBatches
from normlab.experiments.networks.decoder import Decoder, make_decoder
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Count, Several, check_divides
from normlab.experiments.training import minimize


@dataclass(frozen=True)
class CopyTask:
    """Settings that the experiments of this chapter share."""

    layers: Count = 2  #: of the decoder
    width: Count = 32  #: D
    heads: Count = 2  #: of each attention
    symbols: Several = 16  #: number of different tokens
    length: Several = 16  #: of the text that is repeated
    batch_size: Count = 32  #: N
    steps: Count = 400  #: updates

    def __post_init__(self) -> None:
        check_divides(self, "heads", "width")


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


def make_copier(config: Any, width: int, seed: int, **choices: Any) -> Decoder:
    """A decoder of the sizes in `config`; the choices are those of :func:`make_decoder`."""
    return make_decoder(
        layers=config.layers,
        width=width,
        heads=config.heads,
        vocabulary=config.symbols,
        length=2 * config.length,
        seed=seed,
        **choices,
    )


def make_texts(config: Any, seed: int) -> SequenceBatches:
    """Batches of the sizes in `config`; other draws than those of the weights."""
    sizes = {"symbols": config.symbols, "length": config.length, "batch_size": config.batch_size}
    return copy_batches(**sizes, seed=1000 + seed)


def train_to_copy(
    model: Decoder,
    optimizer: torch.optim.Optimizer,
    config: CopyTask,
    *,
    seed: int,
    warmup: int = 0,
) -> float:
    """Train in place; the mean loss of the last 20 updates.

    The rate rises linearly over `warmup` updates. A loss that is larger than that of guessing all
    symbols alike, or not finite, counts as that.
    """
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(warmup, 1)))
    losses = minimize(
        lambda batch: copy_loss(model, batch, config.length),
        make_texts(config, seed),
        optimizer,
        steps=config.steps,
        after_step=lambda step: scheduler.step(),
    )
    last, guessing = sum(losses[-20:]) / len(losses[-20:]), math.log(config.symbols)
    return rounded(last if math.isfinite(last) and last < guessing else guessing)


def learn_to_copy(
    config: CopyTask, *, lr: float, seed: int, warmup: int = 0, **choices: Any
) -> tuple[float, Decoder]:
    """Build one decoder and train it by Adam; the loss of :func:`train_to_copy`, and the model."""
    model = make_copier(config, config.width, seed, **choices)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    return train_to_copy(model, optimizer, config, seed=seed, warmup=warmup), model
