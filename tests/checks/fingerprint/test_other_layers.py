"""Layers in a norm's place that are none, or whose factors come from elsewhere: what is said."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

from normlab import identify, layers

IMAGES = (3, 6, 4, 5)


class GlobalResponse(nn.Module):
    """Channels last, as its authors write it; `kept` is how much of the input is added."""

    def __init__(self, kept: float = 1.0, order: float = 2.0):
        super().__init__()
        self.gamma, self.beta = (nn.Parameter(torch.zeros(1, 1, 1, 6)) for _ in range(2))
        self.kept, self.order = kept, order

    def forward(self, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, self.order, dim=(1, 2), keepdim=True)
        relative = length / (length.mean(-1, keepdim=True) + 1e-6)
        return self.gamma * x * relative + self.beta + self.kept * x


class Moving(nn.Module):
    """Takes each batch into its running statistics, and normalizes with these: in `steps` calls."""

    def __init__(self, *, rate: float | None = None, steps: int | None = None):
        super().__init__()
        self.rate, self.steps = rate, steps
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("glob_mean", torch.zeros(6))
        self.register_buffer("glob_std", torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and (self.steps is None or self.count < self.steps):
            self.count += 1
            new = self.rate if self.rate and self.count > 1 else 1 / self.count
            self.glob_mean = (1 - new) * self.glob_mean + new * x.mean(0)
            self.glob_std = (1 - new) * self.glob_std + new * x.std(0, correction=0)
        return (x - self.glob_mean) / (self.glob_std + 1e-5)


MOVES = {
    "mean of all batches": (Moving(), True),
    "moving average": (Moving(rate=0.1), True),
    "for ten batches": (Moving(steps=10), True),
    "first batch": (Moving(steps=1), False),
}


@pytest.mark.parametrize("name", MOVES)
def test_statistics_that_go_on_moving_are_not_those_of_the_first_batch(name):
    layer, moves = MOVES[name]
    reason = identify(layer, shape=(12, 6)).reasons["family"]
    assert ("each call moves on" in reason) == moves, reason
    assert ("data-dependent initialization" in reason) != moves


NAMED = {
    "dyt": (layers.DyT(8), (4, 8), r"pointwise: no statistics .* tanh\(alpha \* x\).* DyT"),
    "steep dyt": (layers.DyT(8, alpha=9.0), (4, 7, 8), r"the form of DyT"),
    "derf": (layers.Derf(8), (4, 8), r"pointwise: no statistics .* erf\(alpha.* Derf"),
    "global response": (layers.GlobalResponseNorm(6), IMAGES, "it is a global response norm"),
    "channels last": (GlobalResponse(), (3, 4, 5, 6), "it is a global response norm"),
    "batch renorm": (layers.BatchRenorm1d(6), (12, 6), "it is a batch renorm within its bounds"),
    "of images": (layers.BatchRenorm2d(6), (5, 6, 4, 3), "it is a batch renorm"),
}
OTHERS = {
    "hard tanh": (nn.Hardtanh(), (4, 6), "no statistics are taken"),
    "softsign": (nn.Softsign(), (4, 6), "no statistics are taken"),
    "tanh of neighbors": (lambda x: torch.tanh(x + x.roll(1, -1)), (4, 6), ""),
    "no residual": (GlobalResponse(kept=0.0), (3, 4, 5, 6), "64 times the input"),
    "twice the input": (GlobalResponse(kept=2.0), (3, 4, 5, 6), "64 times the input"),
    "sum of magnitudes": (GlobalResponse(order=1.0), (3, 4, 5, 6), "64 times the input"),
    "linear": (nn.Linear(6, 6), (4, 6), "affine function"),
}
WORDS = ("DyT", "Derf", "global response", "batch renorm")


@pytest.mark.parametrize("name", NAMED)
def test_the_reason_names_the_layer(name):
    layer, shape, said = NAMED[name]
    before = {key: value.clone() for key, value in getattr(layer, "state_dict", dict)().items()}
    found = identify(layer, shape=shape)
    assert found.family is None
    reason = found.reasons["family"]
    assert sum(word in reason for word in WORDS) == 1
    assert re.search(said, reason), reason
    after = layer.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())


@pytest.mark.parametrize("name", OTHERS)
def test_what_comes_near_is_not_given_the_name(name):
    layer, shape, said = OTHERS[name]
    found = identify(layer, shape=shape)
    assert found.family is None
    assert said in found.reasons["family"]
    assert not any(word in found.reasons["family"] for word in WORDS)


def test_batch_renorm_without_bounds_to_move_in_is_batch_norm():
    found = identify(layers.BatchRenorm1d(6, r_max=1.0, d_max=0.0), shape=(12, 6))
    assert (found.family, found.running_statistics) == ("batch_norm", True)


@pytest.mark.parametrize(
    ("layer", "shape", "others", "family", "modulated"),
    [
        (layers.AdaLN(8, 5), (4, 8), (4, 5), "layer_norm", True),
        (layers.AdaLN(8, 5), (4, 7, 8), (4, 5), "layer_norm", True),
        (layers.adaptive_instance_norm, IMAGES, (3, 6, 7, 7), "instance_norm", True),
        (layers.QKNorm(8), (2, 3, 5, 8), (2, 3, 5, 8), "rms_norm", False),
    ],
    ids=["AdaLN", "AdaLN of tokens", "AdaIN", "QK-norm"],
)
def test_uses_of_a_norm_are_that_norm(layer, shape, others, family, modulated):
    g = torch.Generator().manual_seed(0)
    found = identify(layer, shape=shape, others=(torch.randn(others, generator=g),))
    assert (found.family, found.modulated) == (family, modulated)


def test_the_norm_before_adaln_alone_is_not_modulated():
    found = identify(nn.LayerNorm(8, elementwise_affine=False), shape=(4, 7, 8))
    assert (found.family, found.modulated) == ("layer_norm", False)
