"""16 bits: which eps a layer has there, and what a right one may do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab.checks import check_layer

EPS32 = torch.finfo(torch.float32).eps
LARGER = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-6}


class RMSNorm(nn.Module):
    """Statistics in float32; eps is a number, or one for each dtype."""

    def __init__(self, eps):
        super().__init__()
        self.weight, self.own = nn.Parameter(torch.ones(16)), eps

    def forward(self, x):
        eps = self.own(x.dtype) if callable(self.own) else self.own
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * self.weight


def of_dtype(dtype):
    return torch.finfo(dtype).eps


def test_an_eps_that_follows_the_dtype_is_named():
    report = check_layer(RMSNorm(of_dtype), like="rms_norm")
    text, (first, second) = str(report), report.failures
    assert "eps is 7.8e-03 in bfloat16, 1.2e-07 in float32. Take the same eps" in first.message
    assert "eps is 9.8e-04 in float16, 1.2e-07 in float32" in second.message
    assert {f.mistake for f in report.failures} == {"eps_of_dtype"}
    assert {f.check for f in report.failures} == {"bfloat16, small input", "float16, small input"}
    assert "in float32, not in bfloat16, float16" in text


def test_an_eps_that_is_larger_in_one_dtype():
    report = check_layer(RMSNorm(LARGER.get), like="rms_norm", eps=1e-6)
    (failure,) = report.failures
    assert "eps is 1.0e-03 in float16, 1.0e-06 in float32" in failure.message


def test_a_function_and_a_layer_norm():
    def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        wide = (None if p is None else p.float() for p in (weight, bias))
        eps = 0.01 if x.dtype in (torch.bfloat16, torch.float16) else eps
        return F.layer_norm(x.float(), normalized_shape, *wide, eps).to(x.dtype)

    report = check_layer(layer_norm, like="layer_norm")
    assert {f.mistake for f in report.failures} == {"eps_of_dtype"}, str(report)
    assert "eps is 1.0e-02 in bfloat16, 1.0e-05 in float32" in str(report)


@pytest.mark.parametrize("eps", [EPS32, 1e-5, 1e-6, 1e-12, 0.01, 0.0])
def test_one_eps_for_all_dtypes_is_right(eps):
    report = check_layer(RMSNorm(eps), like="rms_norm", eps=eps)
    assert report.passed, str(report)
    assert {"bfloat16, small input", "float16, small input"} <= set(report.checks)
    torchs = check_layer(nn.RMSNorm(16, eps=eps), like="rms_norm")
    assert torchs.passed, str(torchs)


def test_torchs_own_default_is_that_of_float32():
    assert check_layer(F.rms_norm, like="rms_norm").passed


@pytest.mark.parametrize("eps", [1e-5, 1e-12])
def test_statistics_in_half_are_no_other_eps(eps):
    class Half(RMSNorm):
        def forward(self, x):
            scale = torch.rsqrt((x * x).cumsum(-1)[..., -1:] / x.shape[-1] + self.own)
            return x * scale * self.weight

    report = check_layer(Half(eps), like="rms_norm", eps=eps)
    assert "half_precision_statistics" in {f.mistake for f in report.failures}, str(report)
    assert "eps_of_dtype" not in {f.mistake for f in report.failures}, str(report)
