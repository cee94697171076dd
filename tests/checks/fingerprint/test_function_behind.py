"""A function behind the norm, a residual before it, a condition beside it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab import identify
from normlab.checks.fingerprint.function_behind import FUNCTIONS

IMAGES = (2, 6, 5, 7)
G = torch.Generator().manual_seed(0)


class Behind(nn.Module):
    """A norm of torch's with a function behind it."""

    def __init__(self, norm: nn.Module, function):
        super().__init__()
        self.norm, self.function = norm, function
        for p in norm.parameters():
            p.data.add_(0.3 * torch.randn(p.shape, generator=G))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.norm(x))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_behind_a_norm_with_a_bias(name):
    layer = Behind(nn.GroupNorm(2, 6, eps=1e-4), FUNCTIONS[name][0])
    found = identify(layer, shape=IMAGES)
    assert (found.family, found.num_groups, found.eps) == ("group_norm", 2, 1e-4)
    assert found.followed_by == name
    assert found.nearest_torch == f"Sequential(GroupNorm(2, 6, eps=0.0001), {FUNCTIONS[name][1]})"
    x = torch.randn(IMAGES, generator=G)
    assert torch.allclose(found.to_torch()(x), layer(x), atol=1e-4)
    assert f"followed_by        {name}" in str(found)
    assert found.to_dict()["followed_by"] == name


NORMS = {
    "batch": (nn.BatchNorm2d(6), IMAGES, "batch_norm"),
    "layer": (nn.LayerNorm(8), (3, 5, 8), "layer_norm"),
    "no bias": (nn.RMSNorm(8, eps=1e-6), (3, 8), "rms_norm"),
    "no weight": (nn.InstanceNorm2d(6), IMAGES, "instance_norm"),
}


@pytest.mark.parametrize("function", [F.relu, F.silu], ids=["relu", "silu"])
@pytest.mark.parametrize("name", NORMS)
def test_a_function_behind_each_kind_of_norm(name, function):
    norm, shape, family = NORMS[name]
    found = identify(Behind(norm, function), shape=shape)
    assert (found.family, found.followed_by) == (family, function.__name__)
    assert found.running_statistics is (family == "batch_norm")
    plain = identify(norm, shape=shape)
    assert (found.eps, found.statistics_dtype) == (plain.eps, plain.statistics_dtype)


def test_a_leaky_one_and_its_slope():
    found = identify(Behind(nn.BatchNorm2d(6), lambda t: F.leaky_relu(t, 0.2)), shape=IMAGES)
    assert found.followed_by == "leaky_relu"
    assert found.nearest_torch == "Sequential(BatchNorm2d(6), LeakyReLU(0.2))"


def test_a_wrong_norm_behind_a_function_keeps_its_conventions():
    class Bessel(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))

        def forward(self, x: Tensor) -> Tensor:
            y = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)
            return F.relu(y * self.w + self.b)

    found = identify(Bessel(), shape=(4, 8))
    assert (found.family, found.divisor, found.eps_placement) == ("layer_norm", "n-1", "outside")
    assert found.followed_by == "relu"


@pytest.mark.parametrize(
    "layer",
    [
        nn.Sequential(nn.Linear(8, 8), nn.ReLU()),
        nn.ReLU(),
        Behind(nn.LayerNorm(8), torch.sin),
        nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU()),
    ],
)
def test_what_is_no_norm_before_the_function_either(layer):
    found = identify(layer, shape=(4, 8))
    assert found.family is None
    assert found.reasons["family"]


class AdaLN(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.project = nn.LayerNorm(8, elementwise_affine=False), nn.Linear(4, 16)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.project(condition)[:, None].chunk(2, -1)
        return self.norm(x) * (1 + scale) + shift


class SPADE(nn.Module):
    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm
        self.scale, self.shift = (nn.Conv2d(2, 6, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor, segments: Tensor) -> Tensor:
        return self.norm(x) * (1 + self.scale(segments)) + self.shift(segments)


SEGMENTS = torch.randn(2, 2, 5, 7, generator=G)
CONDITIONED = {
    "AdaLN": (AdaLN(), (3, 5, 8), torch.randn(3, 4, generator=G), "layer_norm", (2,)),
    "SPADE": (SPADE(nn.InstanceNorm2d(6)), IMAGES, SEGMENTS, "instance_norm", (2, 3)),
    "SPADE, batch": (
        SPADE(nn.BatchNorm2d(6, affine=False)),
        IMAGES,
        SEGMENTS,
        "batch_norm",
        (0, 2, 3),
    ),
    "SPADE, groups": (
        SPADE(nn.GroupNorm(2, 6, affine=False)),
        IMAGES,
        SEGMENTS,
        "group_norm",
        (1, 2, 3),
    ),
}


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("name", CONDITIONED)
def test_a_condition_beside_the_input(name, hidden):
    layer, shape, condition, family, axes = CONDITIONED[name]
    if hidden:
        found = identify(lambda x: layer(x, condition), shape=shape)
    else:
        found = identify(layer, shape=shape, others=(condition,))
    assert (found.family, found.reduced_axes, found.modulated) == (family, axes, True)
    assert "modulated" in str(found)
    assert found.nearest_torch is None


def test_a_norm_without_a_condition_is_not_modulated():
    assert not identify(nn.LayerNorm((5, 7)), shape=IMAGES).modulated
    assert not identify(
        lambda x: F.layer_norm(x, (8,)) * torch.arange(1, 9), shape=(3, 8)
    ).modulated


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return F.rms_norm(total, (8,), self.weight, 1e-6), total


def test_a_residual_before_the_norm_and_a_pair_as_its_result():
    found = identify(Fused(), shape=(3, 8), others=(torch.randn(3, 8, generator=G),))
    assert (found.family, found.eps) == ("rms_norm", 1e-6)
    assert any("zeros" in note for note in found.notes)
    found = identify(lambda x: (F.layer_norm(x, (8,)), x), shape=(3, 8))
    assert found.family == "layer_norm"


def mean_square(x: Tensor) -> Tensor:
    return x.square().mean(-1, keepdim=True)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: F.normalize(x, dim=-1) * 8**0.5, "1e-12 on the L2 norm"),
        (lambda x: x / mean_square(x).sqrt().clamp_min(5e-6), "5e-06 on the root"),
        (lambda x: x / mean_square(x).clamp_min(1e-6).sqrt(), "1e-06 on the mean"),
        (lambda x: x / (mean_square(x).sqrt() + 1e-6), "1e-06 outside"),
    ],
)
def test_eps_is_told_in_the_units_in_which_it_is_round(function, text):
    found = identify(function, shape=(4, 8))
    assert text in str(found)
    assert text in found.describe_eps()


def test_a_filter_response_norm_has_its_threshold_named():
    class FilterResponse(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(1, 6, 1, 1))
            self.b, self.t = (
                nn.Parameter(torch.zeros(1, 6, 1, 1)),
                nn.Parameter(torch.zeros(1, 6, 1, 1)),
            )

        def forward(self, x: Tensor) -> Tensor:
            y = x * torch.rsqrt(x.square().mean((2, 3), keepdim=True) + 1e-6)
            return torch.maximum(y * self.w + self.b, self.t)

    found = identify(FilterResponse(), shape=IMAGES)
    assert (found.reduced_axes, found.centered, found.followed_by) == ((2, 3), False, "threshold")


def test_a_reason_is_told_of_weights_that_are_not_zero():
    class Response(nn.Module):
        """Begins as the identity, since its weight begins at 0."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(6, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            size = x.square().sum((2, 3), keepdim=True).sqrt()
            return x + self.weight * x * size / (size.mean(1, keepdim=True) + 1e-6)

    assert "64 times the input" in identify(Response(), shape=IMAGES).reasons["family"]
