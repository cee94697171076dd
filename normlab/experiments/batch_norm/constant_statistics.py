"""What happens if the gradient treats the mean of the batch as a constant?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.experiments.settings import Count, Index, Positive


@dataclass(frozen=True)
class Config:
    """One unit u + b whose batch mean is subtracted, fitted to targets with another mean."""

    steps: Count = 2000  #: of gradient descent on the bias b
    lr: Positive = 0.5  #: its learning rate
    batch_size: Count = 64  #: values u
    target_mean: float = 0.25  #: of the targets; the centered output can never reach it
    through_statistics: bool = False  #: differentiate the mean, too, as batch norm does
    seed: Index = 0  #: of u and of the targets


def run(config: Config) -> dict[str, list[float]]:
    """Descend on b alone, in float64.

    Measures:
        biases: value of b before the first and after each step.
        losses: mean of half the squared error there.

    Source:
        the example of ioffe2015batch, Section 2, with numbers of our own.
    """
    generator = torch.Generator().manual_seed(config.seed)
    u = torch.randn(config.batch_size, generator=generator, dtype=torch.float64)
    target = u - u.mean() + config.target_mean
    b = torch.zeros((), dtype=torch.float64, requires_grad=True)
    biases, losses = [], []
    for _ in range(config.steps + 1):
        x = u + b
        mean = x.mean() if config.through_statistics else x.mean().detach()
        loss = ((x - mean) - target).square().mean() / 2
        biases.append(b.item())
        losses.append(loss.item())
        (gradient,) = torch.autograd.grad(loss, b)
        with torch.no_grad():
            b -= config.lr * gradient
    return {"biases": biases, "losses": losses}
