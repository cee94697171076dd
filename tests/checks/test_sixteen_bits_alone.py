"""Kernels that take one 16-bit dtype and nothing else: right ones pass, and mistakes are named."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from normlab import layers
from normlab.checks import check_layer
from normlab.checks.mutants import find_mutant

BOTH = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


def alone(function: Callable[..., Tensor], dtype: torch.dtype, wide: bool = False):
    """A kernel that refuses other input; `wide`: it computes in float32 and rounds once."""

    @functools.wraps(function)
    def kernel(x, *args, **others):
        if x.dtype != dtype:
            raise TypeError(f"expected {dtype}, got {x.dtype}")
        if not wide:
            return function(x, *args, **others)
        args = [a.float() if isinstance(a, Tensor) else a for a in args]
        others = {k: v.float() if isinstance(v, Tensor) else v for k, v in others.items()}
        return function(x.float(), *args, **others).to(dtype)

    return kernel


def cast_before_weight(x, weight, eps=1e-6):
    y = x.float()
    return weight * (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def three_roundings(x, weight, bias, eps=1e-5):
    y = x.float() - x.float().mean(-1, keepdim=True)
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight + bias


@BOTH
@pytest.mark.parametrize(
    ("function", "like", "options"),
    [
        (F.layer_norm, "layer_norm", {}),
        (layers.rms_norm, "rms_norm", {}),
        (F.group_norm, "group_norm", {}),
        (F.batch_norm, "batch_norm", {}),
        (F.instance_norm, "instance_norm", {}),
        (cast_before_weight, "rms_norm", {"eps": 1e-6}),
        (three_roundings, "layer_norm", {}),
    ],
)
def test_a_right_kernel_passes(function, like, options, dtype):
    report = check_layer(alone(function, dtype), like=like, dtype=dtype, **options)
    assert report.passed, report


@BOTH
@pytest.mark.parametrize(
    ("like", "mistake"),
    [
        ("layer_norm", "bessel"),
        ("layer_norm", "other_eps"),
        ("layer_norm", "eps_outside"),
        ("layer_norm", "weight_offset"),
        ("layer_norm", "bias_first"),
        ("layer_norm", "averaged"),
        ("rms_norm", "centered"),
        ("rms_norm", "sum_not_mean"),
        ("group_norm", "missing_centering"),
        ("batch_norm", "bessel"),
    ],
)
def test_a_mistake_is_named_as_in_float32(like, mistake, dtype):
    mutant = find_mutant(like, mistake)
    report = check_layer(alone(mutant.make(), dtype, wide=True), like=like, dtype=dtype)
    assert mutant.mistake in {f.mistake for f in report.failures}, report


@BOTH
def test_an_output_that_is_eight_percent_too_large(dtype):
    def scaled(x, weight):
        return 1.08 * layers.rms_norm(x, weight.shape, weight)

    report = check_layer(alone(scaled, dtype, wide=True), like="rms_norm", dtype=dtype)
    assert "expected 1.414, 0; got 1.5" in str(report)


def first_block(x, weight):
    """A row has to fit into one block."""
    mean = x[..., :16_384].square().sum(-1, keepdim=True) / x.shape[-1]
    return x * torch.rsqrt(mean + torch.finfo(torch.float32).eps) * weight


def first_rows(x, weight):
    """A grid ends at 4,096 rows."""
    y = layers.rms_norm(x, weight.shape, weight).flatten(0, -2)
    return torch.cat([y[:4096], 0 * y[4096:]]).view(x.shape)


@BOTH
@pytest.mark.parametrize(
    ("function", "check"), [(first_block, "other widths"), (first_rows, "large input")]
)
def test_a_kernel_that_is_wrong_at_one_size_alone(function, check, dtype):
    report = check_layer(alone(function, dtype, wide=True), like="rms_norm", dtype=dtype)
    assert [f.check for f in report.failures] == [check], report
    assert str(report).startswith("does not conform to rms_norm: 1 of")


def test_an_eps_of_its_own_is_named_and_declared():
    kernel = alone(cast_before_weight, torch.bfloat16)
    report = check_layer(lambda x, weight: kernel(x, weight), like="rms_norm", dtype="bfloat16")
    assert {f.mistake for f in report.failures} == {"other_eps"}
    assert "eps is 1e-06, expected 1.19e-07" in str(report)


def test_what_is_computed_in_sixteen_bits():
    def squares(x, weight, eps=1e-6):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight

    def mean(x, weight, bias, eps=1e-5):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.float().square().mean(-1, True) + eps).to(x.dtype) * weight + bias

    report = check_layer(alone(squares, torch.float16), like="rms_norm", dtype="float16", eps=1e-6)
    assert "half_precision_statistics" in {f.mistake for f in report.failures}, report
    report = check_layer(alone(mean, torch.bfloat16), like="layer_norm", dtype="bfloat16")
    assert "or the mean is rounded to 16 bits before it is subtracted" in str(report)


def test_a_gradient_that_is_not_finite_is_said():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(weight)
            return layers.rms_norm(x, weight.shape, weight)

        @staticmethod
        def backward(ctx, dy):
            (weight,) = ctx.saved_tensors
            return dy / 0, torch.full_like(weight, torch.nan)

    def broken(x, weight):
        return Broken.apply(x, weight)

    for dtype in (torch.float32, torch.bfloat16):
        report = check_layer(alone(broken, dtype), like="rms_norm", dtype=dtype)
        assert "by the input and the weight: it has entries that are not finite" in str(report)
