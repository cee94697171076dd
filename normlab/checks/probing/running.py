"""Running statistics, seen from how buffers follow the inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.checks.probing.layer import ForeignLayer
from normlab.checks.probing.state import tensors_of


@dataclass(frozen=True)
class Running:
    """Buffers that follow mean and variance of the channels."""

    mean: str  #: name of the buffer
    var: str  #: name of the buffer
    rates: tuple[float, float]  #: weight of a first and of a second batch in the mean

    @property
    def momentum(self) -> float | None:
        """Weight of a new batch; None where it is not the same for each."""
        first, second = self.rates
        if not math.isclose(first, second, rel_tol=1e-4):
            return None
        return float(f"{first:.6g}") if first < 0.9999999 else 1.0

    @property
    def is_average(self) -> bool:
        """Whether it is the average of all batches so far."""
        first, second = self.rates
        return self.momentum is None and math.isclose(second, first / (1 + first), rel_tol=1e-4)


def _buffers(layer: ForeignLayer) -> dict[str, Tensor]:
    module = layer.modules[0]
    parameters = dict(module.named_parameters())
    return {
        name: tensor.detach().clone().cpu().double().flatten()
        for name, tensor in tensors_of(module).items()
        if name not in parameters and tensor.is_floating_point()
        if tensor.layout == torch.strided and not (tensor.is_nested or tensor.is_meta)
    }


def find_running(layer: ForeignLayer) -> Running | None:
    """Give two batches in training and see which buffer moves toward the mean of each.

    The buffers are left as the two calls make them.
    """
    if len(layer.modules) != 1:
        return None
    rates: list[dict[str, float]] = []
    for seed in (61, 62):
        x = 2 * layer.input(seed) + 3
        before = _buffers(layer)
        layer(x, keep=True)
        after, mean = _buffers(layer), x.mean([a for a in range(x.dim()) if a != 1])
        rates.append({})
        for name, old in before.items():
            if old.shape != mean.shape or name not in after:
                continue
            way, step = mean - old, after[name] - old
            rate = float((step * way).sum() / way.square().sum())
            if float((step - rate * way).abs().max()) <= 1e-5 * float(way.abs().max()) and rate:
                rates[-1][name] = rate
    both = [name for name in rates[0] if name in rates[1]]
    if not both:
        return None
    rest = [n for n, b in before.items() if n != both[0] and b.shape == mean.shape]
    moved = [n for n in rest if not bool((after[n] == before[n]).all())]
    if len(moved) != 1:
        return None
    return Running(both[0], moved[0], (rates[0][both[0]], rates[1][both[0]]))
