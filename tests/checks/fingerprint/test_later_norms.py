"""The norms after 2016 under their names, with what is particular to each."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab import doctor, identify, layers
from normlab.checks import check_layer

IMAGES = (3, 6, 4, 5)


class PaperScaleNorm(nn.Module):
    """As its authors write it, with the length bounded."""

    def __init__(self, size: int, eps: float = 1e-5):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(math.sqrt(size)))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.scale / x.norm(dim=-1, keepdim=True).clamp(min=self.eps))


@pytest.mark.parametrize(
    ("layer", "shape", "family", "eps"),
    [
        (layers.FilterResponseNorm(6), IMAGES, "filter_response_norm", "1e-06"),
        (layers.FilterResponseNorm(6, eps=1e-4), (3, 6, 9), "filter_response_norm", "0.0001"),
        (layers.ScaleNorm(8), (4, 8), "scale_norm", "1e-05 on the L2 norm at least"),
        (PaperScaleNorm(8, 1e-3), (4, 3, 8), "scale_norm", "0.001 on the L2 norm at least"),
        (lambda x: F.normalize(x, dim=-1), (4, 8), "scale_norm", "1e-12 on the L2 norm at least"),
        (lambda x: F.normalize(x, dim=1), (4, 8, 5), "scale_norm", "1e-12 on the L2 norm at least"),
    ],
)
def test_names_and_eps(layer, shape, family, eps):
    found = identify(layer, shape=shape)
    assert (found.family, found.centered, found.running_statistics) == (family, False, False)
    assert found.describe_eps() == eps
    assert found.followed_by == ("threshold" if family == "filter_response_norm" else None)
    assert found.nearest_torch is None and found.reasons["nearest_torch"]


def test_the_eps_of_a_length_is_the_one_that_the_check_takes():
    layer = PaperScaleNorm(8, 1e-3)
    found = identify(layer, shape=(4, 8))
    assert found.eps == pytest.approx(1e-6)
    declared = {"eps": found.eps, "eps_placement": found.eps_placement}
    assert check_layer(layer, like="scale_norm", shape=(4, 8), **declared).passed
    wrong = {**declared, "eps": 8 * found.eps}
    assert not check_layer(layer, like="scale_norm", shape=(4, 8), **wrong).passed


def test_precision_of_a_length():
    found = identify(layers.ScaleNorm(8), shape=(4, 8))
    assert (found.statistics_dtype, found.weight_cast) == (torch.float32, "before")


def test_a_zero_centered_weight_is_an_offset():
    found = identify(layers.ZeroCenteredRMSNorm(8), shape=(4, 8))
    assert (found.family, found.weight_offset, found.centered) == ("rms_norm", 1, False)
    like = "zero_centered_rms_norm"
    assert check_layer(layers.ZeroCenteredRMSNorm(8), like=like).passed
    names = {f.mistake for f in check_layer(nn.RMSNorm(8, eps=1e-6), like=like).failures}
    assert names == {"weight_offset_forgotten"}


def test_a_threshold_hides_the_casts():
    found = identify(layers.FilterResponseNorm(6), shape=IMAGES)
    assert found.statistics_dtype is None
    assert "behind a threshold" in found.reasons["statistics_dtype"]


class Net(nn.Module):
    def __init__(self, norm: nn.Module, bound: nn.Module):
        super().__init__()
        self.first, self.bound = nn.Conv2d(3, 6, 3, bias=False), bound
        self.linear, self.norm = nn.Linear(6, 8), norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(self.bound(self.first(x)).mean((2, 3))))


class CutNorm(layers.ScaleNorm):
    """Its length is a constant in the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / x.detach().norm(dim=-1, keepdim=True).clamp(min=self.eps)


def test_the_doctor_understands_and_checks_them():
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    report = doctor(Net(layers.ScaleNorm(8), layers.FilterResponseNorm(6)), x)
    assert [n.fingerprint.family for n in report.norms] == ["filter_response_norm", "scale_norm"]
    assert (report.unknown, report.findings) == ([], [])
    wrong = doctor(Net(CutNorm(8), layers.FilterResponseNorm(6)), x)
    assert ("does_not_conform", ("norm",)) in {(f.rule, f.modules) for f in wrong.findings}
    assert any("Gradients must flow" in f.message for f in wrong.findings)
