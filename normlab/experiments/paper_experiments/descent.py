"""The training loop of the generative experiments: any loss of a batch of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from normlab.experiments.recording import rounded

__all__ = ["descend", "window_means"]


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
    """Minimize `loss_of(x[batch])` with Adam and return the loss before each update.

    Args:
        model: trained in place, in train mode.
        loss_of: maps rows of `x` to a scalar that depends on the parameters of `model`.
        x: (n, \\*) training rows.
        steps: number of updates.
        batches: yields index batches.
        lr: of Adam.
        after_step: called with 1, 2, ... after each update, to measure something.

    Raises:
        ValueError: `steps` is below 1, or `lr` is not a positive number.
        FloatingPointError: the loss is no longer finite.
    """
    if steps < 1:
        raise ValueError(f"steps: got {steps}; expected 1 or more")
    if not (math.isfinite(lr) and lr > 0):
        raise ValueError(f"lr: got {lr}; expected a positive number, such as 1e-3")
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for step in range(1, steps + 1):
        model.train()
        loss = loss_of(x[next(batches)])
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"the loss of step {step} is {losses[-1]}; take a smaller lr")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after_step is not None:
            after_step(step)
    return losses


def window_means(values: list[float], window: int) -> tuple[float, ...]:
    """Means of consecutive windows, four digits each; an incomplete last one is left out.

    Example:
        >>> window_means([1.0, 3.0, 5.0, 7.0, 9.0], 2)
        (2.0, 6.0)
    """
    whole = len(values) - len(values) % window
    return tuple(rounded(sum(values[i : i + window]) / window) for i in range(0, whole, window))
