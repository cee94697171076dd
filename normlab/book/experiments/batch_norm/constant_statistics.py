"""What happens if the gradient treats the mean of the batch as a constant?"""

from __future__ import annotations

import torch

from normlab.book.experiments.sweep import Steps, experiment


@experiment(through_statistics=(False, True))
def constant_statistics(through_statistics: bool, *, steps: Steps = 2000) -> dict[str, list[float]]:
    """Fit one unit u + b, whose batch mean is subtracted, to targets with another mean.

    The descent is on b alone, in float64, at a rate of 0.5; the centered output can never reach
    the mean of the targets, 0.25.

    Args:
        through_statistics: differentiate the mean, too, as batch norm does.

    Returns:
        biases: value of b before the first and after each step.
        losses: mean of half the squared error there.

    Source:
        the example of ioffe2015batch, Section 2, with numbers of our own.
    """
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(64, generator=generator, dtype=torch.float64)
    target = u - u.mean() + 0.25
    b = torch.zeros((), dtype=torch.float64, requires_grad=True)
    biases, losses = [], []
    for _ in range(steps + 1):
        x = u + b
        mean = x.mean() if through_statistics else x.mean().detach()
        loss = ((x - mean) - target).square().mean() / 2
        biases.append(b.item())
        losses.append(loss.item())
        (gradient,) = torch.autograd.grad(loss, b)
        with torch.no_grad():
            b -= 0.5 * gradient
    return {"biases": biases, "losses": losses}
