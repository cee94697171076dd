"""identify: norms that lie otherwise in their input than torch's, and what has no record."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from handmade import OneWeight
from torch import Tensor, nn

from normlab import doctor, identify

EPS = 1e-5


class Written(nn.Module):
    """A function of an input, a weight and a bias."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor], features: int = 8):
        super().__init__()
        self.function = function
        self.weight, self.bias = (
            nn.Parameter(torch.ones(features)),
            nn.Parameter(torch.zeros(features)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight, self.bias)


def frame_by_frame(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A group norm of each frame of a video (N, C, T, H, W)."""
    frames = F.group_norm(x.transpose(1, 2).flatten(0, 1), 2, weight, bias, EPS)
    return frames.unflatten(0, (len(x), -1)).transpose(1, 2)


def in_blocks(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    blocks = x.unflatten(-1, (2, -1))
    return F.rms_norm(blocks, blocks.shape[-1:], None, EPS).flatten(-2) * weight


def over_time(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    variance, mean = torch.var_mean(x, 1, keepdim=True, correction=0)
    return (x - mean) / (variance + EPS).sqrt() * weight + bias


def each_position(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.group_norm(x.flatten(0, -2), 2, weight, bias, EPS).view_as(x)


FOUND = {
    "group norm per frame": (frame_by_frame, (2, 8, 3, 5, 6), "group_norm", (1, 3, 4), 2),
    "group norm per position": (each_position, (3, 5, 8), "group_norm", (2,), 2),
    "rms norm in blocks": (in_blocks, (3, 5, 8), "rms_norm", (2,), 2),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_norm_of_parts_is_named_and_says_of_which(name):
    function, shape, family, axes, groups = FOUND[name]
    found = identify(Written(function), shape=shape)
    assert (found.family, found.reduced_axes, found.num_groups) == (family, axes, groups)
    assert (found.eps, found.divisor) == (EPS, "n")
    assert found.variant and found.variant in str(found) and found.to_dict()["variant"]
    assert found.nearest_torch is None


@pytest.mark.parametrize(
    "layer", [nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True), nn.BatchNorm2d(8)]
)
def test_torchs_own_are_no_variants(layer):
    assert identify(layer, shape=(2, 8, 5, 6)).variant is None


def test_one_weight_for_all_entries():
    found = identify(OneWeight(6), shape=(4, 6))
    assert (found.family, found.reduced_axes) == ("rms_norm", (1,))
    assert found.variant == "with one number as its weight"
    assert identify(nn.RMSNorm(6), shape=(4, 6)).variant is None


class OneWeightAHead(nn.Module):
    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], None, EPS) * self.weight


def test_one_weight_for_each_head():
    found = identify(OneWeightAHead((3, 1, 1)), shape=(2, 3, 5, 8))
    assert (found.family, found.reduced_axes, found.eps) == ("rms_norm", (3,), EPS)
    assert found.variant == "with one number for each index of axis 1 as its weight"
    assert identify(OneWeightAHead((3, 1, 8)), shape=(2, 3, 5, 8)).variant is None


def test_a_model_with_such_norms_is_understood():
    model = nn.Sequential(nn.Conv3d(8, 8, 1), Written(frame_by_frame))
    examined = doctor(model, torch.randn(2, 8, 3, 5, 6))
    assert [n.fingerprint.family for n in examined.norms] == ["group_norm"]
    assert examined.passed and examined.norms[0].fingerprint.variant in str(examined)


class ChannelsLast(nn.Module):
    """A batch norm of (N, T, C); `other_momentum` moves its running mean as torch's does not."""

    def __init__(self, *, other_momentum: bool = False):
        super().__init__()
        self.norm, self.other_momentum = nn.BatchNorm1d(8), other_momentum

    def forward(self, x: Tensor) -> Tensor:
        before = self.norm.running_mean.clone()
        y = self.norm(x.movedim(-1, 1)).movedim(1, -1)
        if self.other_momentum and self.training:
            self.norm.running_mean.add_(0.5 * (self.norm.running_mean - before))
        return y


def test_a_batch_norm_whose_channels_come_last():
    found = identify(ChannelsLast(), shape=(3, 5, 8))
    assert (found.family, found.reduced_axes, found.running_statistics) == (
        "batch_norm",
        (0, 1),
        True,
    )
    assert "it is BatchNorm1d(8) of x.movedim(2, 1)" in found.reasons["nearest_torch"]
    other = identify(ChannelsLast(other_momentum=True), shape=(3, 5, 8))
    assert "it is BatchNorm1d(8) of" not in other.reasons["nearest_torch"]


def test_a_norm_over_time():
    found = identify(Written(over_time), shape=(3, 7, 8))
    assert (found.family, found.reduced_axes) == ("instance_norm", (1,))
    assert "InstanceNorm1d(8, affine=True) of x.movedim(2, 1)" in found.reasons["nearest_torch"]
    plain = identify(lambda x: over_time(x, torch.ones(()), torch.zeros(())), shape=(3, 7, 8))
    assert any("instance norm over time" in note for note in plain.notes)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 8))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return F.rms_norm(x * F.silu(gate), (8,), self.weight, EPS)


class GatedByMagnitude(Gated):
    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        gated = x * F.silu(gate)
        return gated / gated.abs().mean(-1, keepdim=True)


class GatedInBlocks(Gated):
    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        blocks = (x * F.silu(gate)).unflatten(-1, (2, -1))
        return F.rms_norm(blocks, (4,), None, EPS).flatten(-2) * self.weight


def test_a_gated_norm():
    gate = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    found = identify(Gated(), shape=(3, 5, 8), others=(gate,))
    assert (found.family, found.reduced_axes, found.modulated) == ("rms_norm", (2,), True)
    assert "gated" in found.variant and found.eps is None and "gate" in found.reasons["eps"]
    blocks = identify(GatedInBlocks(), shape=(3, 5, 8), others=(gate,))
    assert (blocks.family, blocks.num_groups) == ("rms_norm", 2)
    assert "in blocks of 4 along axis 2" in blocks.variant and "in blocks" not in found.variant
    assert identify(GatedByMagnitude(), shape=(3, 5, 8), others=(gate,)).family is None


class DataDependent(nn.Module):
    """ActNorm: the first batch sets scale and shift, which are parameters from then on."""

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))
        self.register_buffer("is_set", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_set:
            self.scale.data = 1 / x.std(0)
            self.shift.data = -x.mean(0) / x.std(0)
            self.is_set.fill_(1)
        return x * self.scale + self.shift


def cumulative(x: Tensor) -> Tensor:
    count = torch.arange(1, x.shape[1] + 1)[:, None]
    return x / (x.square().cumsum(1) / count + EPS).sqrt()


REASONS = {
    "graph layer norm": (lambda x: (x - x.mean()) / (x.std() + EPS), (6, 8), "graph layer norm"),
    "x / std": (lambda x: x / (x.std(-1, keepdim=True) + EPS), (4, 8), "x / std"),
    "magnitudes": (
        lambda x: x / (x.abs().mean(-1, keepdim=True) + EPS),
        (4, 8),
        "mean of their magnitudes",
    ),
    "largest": (lambda x: x / x.abs().amax(-1, keepdim=True), (4, 8), "largest magnitude"),
    "cumulative": (cumulative, (3, 5, 8), "cumulative"),
    "first batch": (DataDependent(), (16, 8), "data-dependent initialization"),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_has_no_record_has_a_reason_that_names_it(name):
    layer, shape, reason = REASONS[name]
    found = identify(layer, shape=shape)
    assert found.family is None and reason in found.reasons["family"]
    others = [text for other, (_, _, text) in REASONS.items() if other != name]
    assert not any(text in found.reasons["family"] for text in others)
