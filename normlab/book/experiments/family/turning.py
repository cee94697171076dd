"""How fast does a weight turn, when weight norm lets its direction matter and not its length?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from normlab.book.experiments.training import fit
from normlab.layers import weight_norm


class Turning(NamedTuple):
    """What happened to the direction parameter v of weight norm."""

    lengths: list[float]  #: of v, after each step
    degrees: list[float]  #: by which v turned in each step


def follow_direction(steps: int = 400, *, lr: float = 0.3, seed: int = 0) -> Turning:
    """Fit noise by one neuron with weight norm: plain gradient descent at a constant rate.

    Targets are random, so that each batch of 8 asks for another direction and none is best.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        neuron = weight_norm(nn.Linear(16, 1, bias=False).double())
    direction = dict(neuron.named_parameters())["parametrizations.weight.original1"]
    before = direction.detach().clone()
    found = Turning([], [])

    def draw() -> tuple[Tensor, Tensor]:
        x = torch.randn(8, 16, generator=generator, dtype=torch.float64)
        return x, torch.randn(8, 1, generator=generator, dtype=torch.float64)

    def record(step: int) -> None:
        v = direction.detach()
        cosine = torch.cosine_similarity(v, before, dim=1).clamp(-1, 1)
        found.lengths.append(v.norm().item())
        found.degrees.append(cosine.acos().rad2deg().item())
        before.copy_(v)

    def loss_of(neuron: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return mse_loss(neuron(batch[0]), batch[1])

    optimizer = torch.optim.SGD([direction], lr=lr)  # the length g stays as it is
    fit(neuron, optimizer, iter(draw, None), steps, loss_of=loss_of, after_step=record)
    return found
