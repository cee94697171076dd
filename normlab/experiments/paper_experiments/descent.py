"""The training loop of the generative experiments: any loss of a batch of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from normlab.experiments.recording import rounded
from normlab.experiments.training import minimize


def descend(
    model: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    steps: int,
    batches: Iterator[Tensor],
    lr: float,
    after_step: Callable[[int], None] | None = None,
) -> list[float]:
    """:func:`~normlab.experiments.training.minimize` a loss of rows with Adam.

    Args:
        x: (n, \\*) training rows.

    Raises:
        FloatingPointError: the loss is no longer finite.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    losses = minimize(
        lambda batch: loss_of(x[batch]), batches, optimizer, steps=steps, after_step=after_step
    )
    if not math.isfinite(losses[-1]):
        message = f"the loss of step {len(losses)} is {losses[-1]}; take a smaller lr"
        raise FloatingPointError(message)
    return losses


def window_means(values: list[float], window: int) -> tuple[float, ...]:
    """Means of consecutive windows, four digits each; an incomplete last one is left out.

    Example:
        >>> window_means([1.0, 3.0, 5.0, 7.0, 9.0], 2)
        (2.0, 6.0)
    """
    whole = len(values) - len(values) % window
    return tuple(rounded(sum(values[i : i + window]) / window) for i in range(0, whole, window))
