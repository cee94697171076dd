"""identify: every convention is read from the outputs, and what cannot be read is not guessed."""

from __future__ import annotations

import copy
import functools
import inspect
import re

import pytest
import torch
import torch.nn.functional as F
from handmade import NO_NORMS, SHAPES, SPELLINGS, Handmade
from torch import nn

from normlab import identify

TORCH = [
    (lambda: nn.BatchNorm1d(6), (5, 6)),
    (lambda: nn.BatchNorm1d(6, eps=1e-3, momentum=0.3), (5, 6, 4)),
    (lambda: nn.BatchNorm1d(6, momentum=None), (5, 6)),
    (lambda: nn.BatchNorm1d(6, affine=False), (5, 6, 4)),
    (lambda: nn.BatchNorm1d(6, track_running_stats=False), (5, 6)),
    (lambda: nn.BatchNorm1d(6, affine=False, track_running_stats=False), (5, 6)),
    (lambda: nn.BatchNorm1d(1), (5, 1)),
    *(
        [
            (lambda: nn.BatchNorm1d(6, bias=False), (5, 6)),
            (lambda: nn.BatchNorm2d(6, bias=False), (3, 6, 4, 5)),
            (lambda: nn.GroupNorm(3, 6, bias=False), (4, 6, 5)),
            (lambda: nn.InstanceNorm1d(6, affine=True, bias=False), (4, 6, 5)),
            (lambda: nn.InstanceNorm2d(6, affine=True, bias=False), (2, 6, 4, 5)),
        ]
        if "bias" in inspect.signature(nn.GroupNorm).parameters
        else []
    ),
    (lambda: nn.BatchNorm2d(6), (3, 6, 4, 5)),
    (lambda: nn.BatchNorm2d(6, momentum=1.0, eps=1e-4), (3, 6, 4, 5)),
    (lambda: nn.BatchNorm2d(6, track_running_stats=False), (3, 6, 4, 5)),
    (lambda: nn.BatchNorm2d(6, affine=False, momentum=None), (3, 6, 4, 5)),
    (lambda: nn.LayerNorm(16), (4, 16)),
    (lambda: nn.LayerNorm(16, eps=1e-12), (2, 3, 16)),
    (lambda: nn.LayerNorm(16, eps=0.0), (2, 3, 16)),
    (lambda: nn.LayerNorm(16, eps=0.5), (2, 3, 16)),
    (lambda: nn.LayerNorm(16, bias=False), (2, 3, 16)),
    (lambda: nn.LayerNorm(16, elementwise_affine=False), (2, 3, 16)),
    (lambda: nn.LayerNorm((3, 4)), (2, 3, 4)),
    (lambda: nn.LayerNorm((3, 4), elementwise_affine=False), (2, 3, 4)),
    (lambda: nn.LayerNorm((5, 3, 4), bias=False), (2, 5, 3, 4)),
    (lambda: nn.LayerNorm(768), (3, 768)),
    (lambda: nn.RMSNorm(16), (4, 16)),
    (lambda: nn.RMSNorm(16, eps=1e-6), (2, 3, 16)),
    (lambda: nn.RMSNorm(16, elementwise_affine=False), (4, 16)),
    (lambda: nn.RMSNorm((3, 4), eps=1e-5), (2, 3, 4)),
    (lambda: nn.RMSNorm((3, 4), eps=1e-5, elementwise_affine=False), (2, 3, 4)),
    (lambda: nn.GroupNorm(3, 6), (4, 6)),
    (lambda: nn.GroupNorm(2, 6, eps=1e-3), (4, 6, 5)),
    (lambda: nn.GroupNorm(3, 6, affine=False), (4, 6, 5, 2)),
    (lambda: nn.GroupNorm(1, 6), (4, 6)),
    (lambda: nn.GroupNorm(1, 6), (4, 6, 5)),
    (lambda: nn.GroupNorm(1, 6, affine=False), (4, 6, 5)),
    (lambda: nn.GroupNorm(6, 6), (4, 6, 5)),
    (lambda: nn.InstanceNorm1d(6), (4, 6, 5)),
    (lambda: nn.InstanceNorm1d(6, affine=True, eps=1e-3), (4, 6, 5)),
    (lambda: nn.InstanceNorm1d(6, track_running_stats=True), (4, 6, 5)),
    (lambda: nn.InstanceNorm1d(6, affine=True, track_running_stats=True), (4, 6, 5)),
    (lambda: nn.InstanceNorm2d(6), (2, 6, 4, 5)),
    (lambda: nn.InstanceNorm2d(6, affine=True), (2, 6, 4, 5)),
    (lambda: nn.InstanceNorm2d(6, track_running_stats=True, momentum=0.3), (2, 6, 4, 5)),
]
FAMILIES = {
    "BatchNorm1d": "batch_norm",
    "BatchNorm2d": "batch_norm",
    "LayerNorm": "layer_norm",
    "RMSNorm": "rms_norm",
    "GroupNorm": "group_norm",
    "InstanceNorm1d": "instance_norm",
    "InstanceNorm2d": "instance_norm",
}


def trained(layer: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """The layer with other parameters, after some steps of training."""
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn_like(p))
        for k in range(3):
            layer.train()((k + 1) * torch.randn(shape) + k)
    return layer


def assert_same_outputs(layer: nn.Module, other: nn.Module, shape: tuple[int, ...]) -> None:
    """In training, then in evaluation, at several sizes and away from 0."""
    for scale, shift in ((1.0, 0.0), (3e-3, 0.0), (5.0, 20.0)):
        x = scale * torch.randn(shape) + shift
        for training in (True, False):
            expected, got = layer.train(training)(x), other.train(training)(x)
            assert got.shape == expected.shape
            limit = 2e-5 * (1 + float(expected.detach().abs().max()))
            assert float((got - expected).detach().abs().max()) <= limit


@pytest.mark.parametrize(("make", "shape"), TORCH, ids=lambda v: str(v()) if callable(v) else "")
def test_torch_layers_are_reproduced(make, shape):
    torch.manual_seed(0)
    layer = trained(make(), shape)
    report = identify(layer, shape=shape)
    assert_every_field_has_a_value_or_a_reason(report)
    found = report.to_torch()
    assert_same_outputs(copy.deepcopy(layer), found, shape)
    family = FAMILIES[type(layer).__name__]
    assert family == report.family or family in report.equivalents
    assert type(found) is type(layer) or type(layer).__name__ in " ".join(report.equivalents)
    if type(found) is type(layer):
        found.load_state_dict(layer.state_dict())
    # the text alone stands for a new layer, too
    again = eval(report.nearest_torch, dict(vars(nn)))
    assert_same_outputs(make(), again, shape)
    assert report.eps_placement == (None if layer.eps == 0 else "inside")
    expected = torch.finfo(torch.float32).eps if layer.eps is None else layer.eps
    assert report.eps == pytest.approx(expected, rel=1e-4, abs=0)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_handmade_layers_are_read(spelling):
    torch.manual_seed(1)
    shape = SHAPES[spelling.family]
    size = shape[-1] if spelling.family in ("layer_norm", "rms_norm") else shape[1]
    layer = Handmade(spelling, size, groups=2)
    report = identify(layer, shape=shape)
    assert report.family == spelling.family
    assert report.eps == pytest.approx(spelling.eps, rel=1e-3)
    assert report.eps_placement == spelling.placement
    assert report.divisor == spelling.divisor
    assert report.weight_offset == spelling.offset
    assert report.weight_cast == spelling.cast
    wide = torch.bfloat16 if spelling.cast is None else torch.float32
    assert report.statistics_dtype == wide
    assert report.centered == (spelling.family != "rms_norm")
    assert report.num_groups == (2 if spelling.family == "group_norm" else None)
    assert report.affine is True
    assert report.running_statistics is False
    if (spelling.placement, spelling.divisor) != ("inside", "n"):
        assert report.nearest_torch is None
        assert report.reasons["nearest_torch"].startswith("no layer of torch")
        return
    assert_same_outputs(layer, eval(report.nearest_torch, dict(vars(nn))), shape)
    with torch.no_grad():
        layer.p.normal_()
    moved = identify(layer, shape=shape)
    assert_same_outputs(layer, moved.to_torch(), shape)


AXES = [
    (nn.LayerNorm((3, 4)), (2, 3, 4), (1, 2)),
    (nn.BatchNorm2d(5), (3, 5, 4, 2), (0, 2, 3)),
    (nn.BatchNorm2d(5), (1, 5, 1, 1), (0, 2, 3)),
    (nn.GroupNorm(2, 4), (3, 4, 5), (1, 2)),
    (nn.InstanceNorm1d(4), (3, 4, 5), (2,)),
    (nn.LayerNorm(4), (4,), (0,)),
]


@pytest.mark.parametrize(("layer", "shape", "axes"), AXES)
def test_reduced_axes(layer, shape, axes):
    assert identify(layer, shape=shape).reduced_axes == axes


class ChannelsFirst(nn.Module):
    """A layer norm over the channels of each position."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = F.layer_norm(x.movedim(1, -1), self.weight.shape, self.weight, None, 1e-6)
        return y.movedim(-1, 1)


@pytest.mark.parametrize(
    ("layer", "shape", "text"),
    [
        (nn.BatchNorm1d(1), (16, 1), "BatchNorm1d(1)"),
        (nn.BatchNorm2d(1), (4, 1, 5, 5), "BatchNorm2d(1)"),
        (nn.InstanceNorm2d(1, affine=True), (4, 1, 5, 5), "InstanceNorm2d(1, affine=True)"),
    ],
)
def test_a_bias_of_a_single_number_is_seen(layer, shape, text):
    assert identify(layer, shape=shape).nearest_torch == text


def test_layer_norm_over_channels_has_no_equal_in_torch():
    report = identify(ChannelsFirst(6), shape=(2, 6, 5, 4))
    assert (report.family, report.reduced_axes, report.eps) == ("layer_norm", (1,), 1e-6)
    assert report.nearest_torch is None
    moved = "LayerNorm(6, eps=1e-06, bias=False) of x.movedim(1, -1)"
    assert moved in report.reasons["nearest_torch"]
    with pytest.raises(ValueError, match="nearest_torch: torch expects the axes in another order"):
        report.to_torch()


def test_equal_answers_are_listed():
    report = identify(nn.LayerNorm(16), shape=(4, 16))
    assert report.family == "layer_norm"
    assert report.equivalents == ["group_norm", "GroupNorm(1, 16)"]
    report = identify(nn.GroupNorm(1, 16), shape=(4, 16))
    assert report.family == "group_norm"
    assert report.equivalents == ["layer_norm", "LayerNorm(16)"]
    report = identify(nn.GroupNorm(6, 6), shape=(4, 6, 5))
    assert report.family == "instance_norm"
    assert "GroupNorm(6, 6)" in report.equivalents


def assert_every_field_has_a_value_or_a_reason(report):
    assert {f for f in report.fields() if getattr(report, f) is None} == set(report.reasons)
    assert all(text in str(report) for text in report.reasons.values())


@pytest.mark.parametrize("name", NO_NORMS)
def test_what_is_no_norm_is_not_named(name):
    layer, shape, reason = NO_NORMS[name]
    report = identify(layer, shape=shape)
    assert report.family is None
    assert report.nearest_torch is None
    assert re.search(reason, report.reasons["family"]), report.reasons["family"]
    assert_every_field_has_a_value_or_a_reason(report)


def test_identity():
    report = identify(nn.Identity(), shape=(4, 6))
    assert (report.family, report.nearest_torch, report.affine) == ("identity", "Identity()", False)
    assert report.eps is None
    assert identify(lambda x: 1.001 * x, shape=(4, 6)).family is None


def test_a_hidden_weight_leaves_the_divisor_open():
    hidden = {"w": torch.rand(16) + 0.5}

    def bessel(x):
        d = x - x.mean(-1, keepdim=True)
        return d / (x.var(-1, keepdim=True) + 1e-5).sqrt() * hidden["w"].to(x.dtype)

    report = identify(bessel, shape=(4, 16))
    assert report.family == "layer_norm"
    assert report.divisor is None
    assert report.eps is None
    assert "1e-05 if it is" in report.reasons["eps"]
    assert report.weight_offset is None
    # as a function of x alone it is torch's layer with other factors and another eps
    assert report.nearest_torch == "LayerNorm(16, eps=9.375e-06, bias=False)"
    x = torch.randn(7, 16) * 3e-3
    assert torch.allclose(report.to_torch()(x), bessel(x), atol=1e-5)


def test_functions_are_read_through_what_they_hold():
    w, b = torch.randn(16), torch.randn(16)
    for layer in (
        lambda x: F.layer_norm(x, (16,), w, b, 1e-6),
        functools.partial(F.layer_norm, normalized_shape=(16,), weight=w, bias=b, eps=1e-6),
    ):
        kept = w.clone(), b.clone()
        report = identify(layer, shape=(4, 16))
        assert (report.family, report.eps, report.divisor) == ("layer_norm", 1e-6, "n")
        assert report.weight_offset == 0
        assert torch.equal(w, kept[0])
        assert torch.equal(b, kept[1])
        x = torch.randn(3, 16)
        assert torch.allclose(report.to_torch()(x), layer(x), atol=1e-5)


def test_methods_of_plain_objects():
    class Holder:
        def __init__(self):
            self.norm = nn.BatchNorm1d(6)

        def call(self, x):
            return self.norm(x)

    holder = Holder()
    assert identify(holder.call, shape=(4, 6)).family == "batch_norm"
    assert torch.equal(holder.norm.running_mean, torch.zeros(6))
    assert torch.equal(holder.norm.weight, torch.ones(6))
    assert identify(holder.norm.forward, shape=(4, 6)).family == "batch_norm"


def test_divisor_of_very_many_elements_is_left_open():
    class Single(nn.Module):
        def forward(self, x):
            return F.layer_norm(x.float(), (200_000,)).to(x.dtype)

    report = identify(Single(), shape=(2, 200_000))
    assert (report.family, report.divisor) == ("layer_norm", None)
    assert "200000 elements" in report.reasons["divisor"]


def test_eps_too_small_to_see():
    class Tiny(nn.Module):
        def forward(self, x):
            h = x.float()
            return (h * (h.square().mean(-1, keepdim=True) + 1e-44).rsqrt()).to(x.dtype)

    report = identify(Tiny(), shape=(4, 8))
    assert report.family == "rms_norm"
    assert report.eps is None
    assert "too small to see" in report.reasons["eps"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_modules(dtype):
    report = identify(nn.LayerNorm(16, eps=1e-6).to(dtype), shape=(4, 16))
    assert (report.family, report.eps) == ("layer_norm", 1e-6)
    assert report.statistics_dtype == torch.float32


def test_a_layer_that_takes_one_dtype_only():
    class Strict(nn.Module):
        def __init__(self, dtype):
            super().__init__()
            self.dtype = dtype
            self.weight = nn.Parameter(torch.ones(16))

        def forward(self, x):
            if x.dtype != self.dtype:
                raise TypeError("wrong dtype")
            return F.rms_norm(x, (16,), self.weight.to(x.dtype), 1e-5)

    for dtype in (torch.float32, torch.bfloat16):
        report = identify(Strict(dtype), shape=(4, 16))
        assert (report.family, report.eps_placement) == ("rms_norm", "inside")
        assert report.eps == pytest.approx(1e-5, rel=1e-3 if dtype == torch.float32 else 2e-2)


def test_statistics_in_float64():
    class Double(nn.Module):
        def forward(self, x):
            return F.layer_norm(x.double(), (16,)).to(x.dtype)

    assert identify(Double(), shape=(4, 16)).statistics_dtype == torch.float64
    assert identify(nn.LayerNorm(16), shape=(4, 16)).statistics_dtype == torch.float32


def test_modes_and_autocast_make_no_difference():
    module = nn.BatchNorm2d(6).eval()
    report = identify(module, shape=(3, 6, 4, 5))
    assert report.running_statistics is True
    assert not module.training
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = identify(module, shape=(3, 6, 4, 5))
    assert again.to_dict() == report.to_dict()


class MeanByMatrix(nn.Module):
    """Its statistics are matrix products, which autocast would run in half precision."""

    def forward(self, x):
        h = x.float()
        ones = torch.full((h.shape[-1], 1), 1 / h.shape[-1])
        d = h - h @ ones
        return (d / ((d * d) @ ones + 1e-5).sqrt()).to(x.dtype)


def test_autocast_around_the_call_is_switched_off():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        report = identify(MeanByMatrix(), shape=(4, 16))
    assert (report.family, report.eps) == ("layer_norm", 1e-5)
    assert report.to_dict() == identify(MeanByMatrix(), shape=(4, 16)).to_dict()


def test_eps_that_follows_the_dtype():
    report = identify(nn.RMSNorm(16), shape=(4, 16))
    assert report.nearest_torch == "RMSNorm(16)"
    assert "2.22" in report.notes[0]

    def fixed(x):
        return F.rms_norm(x, (16,), None, torch.finfo(torch.float32).eps)

    assert "eps=" in identify(fixed, shape=(4, 16)).nearest_torch


class BiasedRunning(nn.Module):
    """A batch norm whose running variance lacks Bessel's correction."""

    def __init__(self, size, correction):
        super().__init__()
        self.correction = correction
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))

    def forward(self, x):
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = x.mean(0), x.var(0, unbiased=False)
            self.running_mean = 0.9 * self.running_mean + 0.1 * mean
            self.running_var = 0.9 * self.running_var + 0.1 * x.var(0, correction=self.correction)
        return (x - mean) / (var + 1e-5).sqrt()


def test_running_statistics_of_another_kind_are_not_torchs():
    report = identify(BiasedRunning(6, 1), shape=(4, 6))
    assert report.nearest_torch == "BatchNorm1d(6, affine=False)"
    report = identify(BiasedRunning(6, 0), shape=(4, 6))
    assert (report.family, report.running_statistics) == ("batch_norm", True)
    assert report.nearest_torch is None
    assert "evaluation mode differ after steps of training" in report.reasons["nearest_torch"]


def test_a_weight_along_more_axes_than_the_statistics():
    class PerHead(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 8))

        def forward(self, x):
            return F.layer_norm(x, (8,)) * self.weight

    report = identify(PerHead(), shape=(2, 5, 3, 8))
    assert (report.family, report.reduced_axes) == ("layer_norm", (3,))
    assert report.nearest_torch is None
    assert "LayerNorm(8, bias=False) comes nearest" in report.reasons["nearest_torch"]


def test_names_and_attributes_are_not_read():
    class LayerNorm(nn.Module):
        eps = 0.25

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(16))

        def forward(self, x):
            return F.rms_norm(x, (16,), self.weight, 1e-6)

    report = identify(LayerNorm(), shape=(4, 16))
    assert (report.family, report.eps) == ("rms_norm", 1e-6)


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: identify(nn.LayerNorm, shape=(4, 6)), TypeError, "construct it first"),
        (lambda: identify(3, shape=(4, 6)), TypeError, "layer"),
        (lambda: identify(nn.LayerNorm(6), shape=6), TypeError, "shape"),
        (lambda: identify(nn.LayerNorm(6), shape=(4, 6.0)), TypeError, "shape"),
        (lambda: identify(nn.LayerNorm(6), shape=(0, 6)), ValueError, "positive"),
        (lambda: identify(nn.LayerNorm(6), shape=(4, 5)), ValueError, "layer: a call"),
        (lambda: identify(lambda x, y: x, shape=(4, 5)), ValueError, "more than one argument"),
    ],
)
def test_bad_arguments(call, error, word):
    with pytest.raises(error, match=word):
        call()


def test_report_is_readable_and_plain():
    report = identify(nn.BatchNorm1d(6), shape=(4, 6))
    values = report.to_dict()
    assert values["statistics_dtype"] == "float32"
    assert values["reduced_axes"] == [0]
    assert "batch_norm" in str(report)
    assert "BatchNorm1d(6)" in str(report)


def test_a_compiled_layer():
    compiled = torch.compile(nn.LayerNorm(8), backend="eager")
    assert identify(compiled, shape=(3, 8)).family == "layer_norm"
