"""The training loop of the chapter, small enough to read on a page."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def train(
    model: nn.Module,
    batches: Iterator[tuple[Tensor, Tensor]],
    optimizer: Optimizer,
    schedule: LRScheduler,
    *,
    steps: int,
    max_grad_norm: float = 1.0,
) -> list[float]:
    """Minimize the cross-entropy over all positions, the gradient clipped, the rate scheduled.

    Args:
        model: maps (N, T) tokens to (N, T, V) logits; trained in place.
        batches: tokens and targets, (N, T) each.

    Returns:
        The loss before each update; every batch is new.
    """
    losses = []
    for _ in range(steps):
        x, y = next(batches)  # tokens and targets, both (N, T)
        logits = model(x)  # (N, T, V)
        loss = cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        schedule.step()  # after the update, once for each
        losses.append(loss.item())
    return losses
