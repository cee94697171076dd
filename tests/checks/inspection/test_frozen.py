"""doctor: batch norms that normalize with their running statistics in training, too."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from normlab import doctor

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
NAMES = ("weight", "bias", "running_mean", "running_var")


class Frozen(nn.Module):
    """As detection models hold it: four buffers and a fixed eps."""

    def __init__(self, size: int):
        super().__init__()
        for name in NAMES:
            self.register_buffer(name, torch.rand(size) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias, mean, var = (getattr(self, name)[:, None, None] for name in NAMES)
        factor = weight * (var + 1e-5).rsqrt()
        return x * factor + (bias - mean * factor)


class Counted(Frozen):
    """With the counter that a loaded state has."""

    def __init__(self, size: int):
        super().__init__(size)
        self.register_buffer("num_batches_tracked", torch.tensor(7))


class Trainable(nn.BatchNorm2d):
    """Its weight and bias are trained, its statistics are not."""

    def forward(self, x: Tensor) -> Tensor:
        running = self.running_mean, self.running_var
        return nn.functional.batch_norm(x, *running, self.weight, self.bias, False, 0.0, self.eps)


class Scale(nn.Module):
    """Named like a norm, a factor for each channel."""

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight[:, None, None]


class ScaleNorm2d(Scale):
    pass


def network(kind: type[nn.Module]) -> nn.Sequential:
    first, second = nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 5, 3, bias=False)
    return nn.Sequential(first, kind(4), nn.ReLU(), second, kind(5))


@pytest.mark.parametrize("kind", [Frozen, Counted, Trainable])
def test_frozen_batch_norms_are_counted_and_named(kind):
    examined = doctor(network(kind), IMAGES)
    assert examined.summary == "2 batch norms, all frozen; no faults found"
    assert examined.frozen == ["1", "4"] and examined.no_statistics == []
    assert "frozen: 1, 4" in str(examined) and examined.passed
    assert json.loads(json.dumps(examined.to_dict()))["frozen"] == ["1", "4"]
    mixed = doctor(nn.Sequential(network(kind), nn.GroupNorm(1, 5)), IMAGES)
    assert mixed.frozen == ["0.1", "0.4"] and len(mixed.norms) == 1
    assert "1 understood, 0 not understood; 2 batch norms more, frozen; no" in mixed.summary


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, ScaleNorm2d, Scale])
def test_what_takes_statistics_or_holds_none_is_not_frozen(kind):
    model = network(kind)
    model(IMAGES)
    for mode in (True, False):
        examined = doctor(model.train(mode), IMAGES)
        assert examined.frozen == [] and "frozen" not in str(examined)
    assert (len(examined.norms) == 2) == (kind is nn.BatchNorm2d)
    assert (examined.no_statistics == ["1", "4"]) == (kind is ScaleNorm2d)
