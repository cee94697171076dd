"""The training loop of the experiments, and what they compare."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def check_every(every: int, steps: int) -> None:
    """`every` must not exceed `steps`."""
    if every > steps:
        raise ValueError(f"every: got {every}; expected at most {steps}, the steps")


def check_warmup(warmup: int, steps: int) -> None:
    """`warmup` must not exceed `steps`."""
    if warmup > steps:
        raise ValueError(f"warmup: got {warmup}; expected at most {steps}, the steps")


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross-entropy of a classifier, in nats."""
    x, labels = batch
    return cross_entropy(model(x), labels)


def token_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross-entropy over all positions of tokens and targets (N, T), in nats."""
    tokens, targets = batch
    return cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def fit(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterator[Any],
    steps: int,
    *,
    loss_of: Callable[[nn.Module, Any], Tensor] = class_loss,
    max_grad_norm: float = math.inf,
    scheduler: LRScheduler | None = None,
    after_step: Callable[[int], object] | None = None,
) -> list[float]:
    """Train for `steps` updates, in train mode, and return the loss before each.

    Args:
        loss_of: maps the model and a batch to a scalar.
        max_grad_norm: longer gradients of all parameters together are cut to this norm.
        scheduler: of the optimizer, stepped after each update.
        after_step: called with 1, 2, ... after each update, to measure something; where it
            returns True, the run ends.

    Returns:
        Losses. A run whose loss is no longer finite stops there: its list is shorter than
        `steps` or ends with that loss.
    """
    model.train()
    losses = []
    for step in range(1, steps + 1):
        loss = loss_of(model, next(batches))
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        if max_grad_norm < math.inf:
            clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if after_step is not None and after_step(step) is True:
            break
    return losses


@dataclass(frozen=True)
class Score:
    """How well a model does on a set."""

    accuracy: float  #: fraction of right answers
    loss: float  #: mean cross-entropy


@torch.no_grad()
def evaluate(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    mode: Literal["eval", "train"] = "eval",
    batch_size: int | None = None,
) -> Score:
    """Score a model without touching it: parameters, running statistics and mode stay.

    Args:
        mode: "eval" normalizes with running statistics, "train" with those of each batch.
        batch_size: samples per call, in the given order; None takes all at once. A smaller
            last batch is left out, so that every batch statistic has the same size.

    Returns:
        Accuracy and mean cross-entropy over the samples that were used.
    """
    if mode not in ("eval", "train"):
        raise ValueError(f"mode: got {mode!r}; expected 'eval' or 'train'")
    model = copy.deepcopy(model).train(mode == "train")
    size = len(y) if batch_size is None else batch_size
    used = len(y) - len(y) % size
    logits = torch.cat([model(part) for part in x[:used].split(size)])
    right = (logits.argmax(-1) == y[:used]).float().mean()
    return Score(right.item(), cross_entropy(logits, y[:used]).item())


@torch.no_grad()
def redraw_signs_(weights: Iterable[Tensor], starts: Iterable[Tensor], seed: int) -> None:
    """Take the step from `starts` to `weights` again, each entry as large but of random sign."""
    generator = torch.Generator().manual_seed(seed)
    for weight, start in zip(weights, starts, strict=True):
        signs = 2 * torch.randint(2, weight.shape, generator=generator) - 1
        weight.copy_(start + signs * (weight - start))
