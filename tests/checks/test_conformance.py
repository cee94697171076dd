"""check_layer: right layers pass in any style, wrong ones fail with the right name."""

import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab import layers
from normlab.checks import (
    BATCH_NORM_MUTANTS,
    LAYER_NORM_MUTANTS,
    CheckFailed,
    check_layer,
)

FAMILIES = ("layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm")


@pytest.mark.parametrize("module", [F, layers], ids=["torch", "normlab"])
@pytest.mark.parametrize("like", FAMILIES)
def test_functions_pass(like, module):
    report = check_layer(getattr(module, like), like=like, double_backward=True)
    assert report.passed, str(report)
    assert len(report.checks) >= 12


MODULES = [
    ("layer_norm", lambda m: m.LayerNorm(6)),
    ("layer_norm", lambda m: m.LayerNorm(768)),
    ("layer_norm", lambda m: m.LayerNorm((3, 4), eps=1e-3)),
    ("layer_norm", lambda m: m.LayerNorm(6, bias=False)),
    ("layer_norm", lambda m: m.LayerNorm(6, elementwise_affine=False)),
    ("rms_norm", lambda m: m.RMSNorm(6)),
    ("rms_norm", lambda m: m.RMSNorm(6, eps=1e-6)),
    ("batch_norm", lambda m: m.BatchNorm1d(6)),
    ("batch_norm", lambda m: m.BatchNorm1d(6, momentum=None)),
    ("batch_norm", lambda m: m.BatchNorm1d(6, momentum=0.4, affine=False)),
    ("batch_norm", lambda m: m.BatchNorm1d(6, track_running_stats=False)),
    ("batch_norm", lambda m: m.BatchNorm2d(5)),
    ("group_norm", lambda m: m.GroupNorm(2, 6)),
    ("instance_norm", lambda m: m.InstanceNorm1d(6)),
    ("instance_norm", lambda m: m.InstanceNorm2d(4, affine=True)),
    ("instance_norm", lambda m: m.InstanceNorm1d(4, affine=True, track_running_stats=True)),
]


@pytest.mark.parametrize("source", [nn, layers], ids=["torch", "normlab"])
@pytest.mark.parametrize(("like", "make"), MODULES)
def test_modules_pass_and_are_left_alone(like, make, source):
    module = make(source)
    before = copy.deepcopy(module.state_dict())
    state = torch.random.get_rng_state()
    others = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    report = check_layer(module, like=like, double_backward=True)
    assert report.passed, str(report)
    assert module.training
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert others == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002


def test_the_streams_that_a_layer_draws_from_are_put_back():
    def drawing(x, *args):
        random.random()
        np.random.random()  # noqa: NPY002
        return torch.nn.functional.layer_norm(x, *args)

    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    position = np.random.get_state()[2]  # noqa: NPY002
    assert check_layer(drawing, like="layer_norm", shape=(4, 16)).passed
    assert before == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    assert position == np.random.get_state()[2]  # noqa: NPY002


class Composed(nn.Module):
    """LayerNorm under other names, upcast, written as powers and means."""

    def __init__(self, size):
        super().__init__()
        self.scale_of_features = nn.Parameter(torch.ones(size))
        self.offset_of_features = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        h = x.float()
        u = h.mean(-1, keepdim=True)
        s = (h - u).pow(2).mean(-1, keepdim=True)
        h = (h - u) / torch.sqrt(s + 1e-5)
        return (h * self.scale_of_features + self.offset_of_features).to(x.dtype)


class ByHand(torch.autograd.Function):
    """A custom function with its own backward, without double backward."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        mean = x.mean(-1, keepdim=True)
        rstd = ((x - mean) ** 2).mean(-1, keepdim=True).add(eps).rsqrt()
        x_hat = (x - mean) * rstd
        ctx.save_for_backward(x_hat, rstd, weight)
        return x_hat * weight + bias

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x_hat, rstd, weight = ctx.saved_tensors
        g = dy * weight
        dx = rstd * (g - g.mean(-1, keepdim=True) - x_hat * (g * x_hat).mean(-1, keepdim=True))
        rows = tuple(range(dy.dim() - 1))
        return dx, (dy * x_hat).sum(rows), dy.sum(rows), None


class Fused(nn.LayerNorm):
    """A subclass of torch's module around the custom function."""

    def forward(self, x):
        y = ByHand.apply(x.float(), self.weight.float(), self.bias.float(), self.eps)
        return y.to(x.dtype)


class Buffered(nn.Module):
    """BatchNorm for images with buffers of shape (1, C, 1, 1) and other names."""

    def __init__(self, size):
        super().__init__()
        shape = (1, size, 1, 1)
        self.gamma = nn.Parameter(torch.ones(shape))
        self.beta = nn.Parameter(torch.zeros(shape))
        self.register_buffer("moving_mean", torch.zeros(shape))
        self.register_buffer("moving_var", torch.ones(shape))

    def forward(self, x):
        h = x.float()
        mean, var = self.moving_mean, self.moving_var
        if self.training:
            mean = h.mean((0, 2, 3), keepdim=True)
            var = ((h - mean) ** 2).mean((0, 2, 3), keepdim=True)
            n = x.numel() / x.shape[1]
            with torch.no_grad():
                self.moving_mean.mul_(0.9).add_(0.1 * mean)
                self.moving_var.mul_(0.9).add_(0.1 * var * n / (n - 1))
        y = self.gamma * (h - mean) / torch.sqrt(var + 1e-5) + self.beta
        return y.to(x.dtype)


@pytest.mark.parametrize(
    ("like", "make", "options"),
    [
        ("layer_norm", lambda: Composed(6), {}),
        ("layer_norm", lambda: Composed(6), {"shape": (2, 3, 6)}),
        ("layer_norm", lambda: Fused(8), {}),
        ("layer_norm", lambda: torch.compile(nn.LayerNorm(6), backend="aot_eager"), {}),
        ("layer_norm", lambda: nn.Sequential(nn.LayerNorm(6)), {}),
        ("batch_norm", lambda: Buffered(4), {}),
    ],
    ids=["names", "shape", "function", "compiled", "wrapped", "buffered"],
)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_right_layers_in_other_styles_pass(like, make, options):
    report = check_layer(make(), like=like, **options)
    assert report.passed, str(report)


def test_a_function_that_cannot_be_differentiated_twice_fails_only_when_asked():
    assert check_layer(Fused(8), like="layer_norm").passed
    report = check_layer(Fused(8), like="layer_norm", double_backward=True)
    assert [f.mistake for f in report.failures] == ["once"]


def layer_norm_with(change):
    """A right layer_norm function with one change: (x_hat, x, weight, bias) -> y."""

    def function(input, normalized_shape, weight=None, bias=None, eps=1e-5):
        x = input.float()
        dims = tuple(range(-len(normalized_shape), 0))
        mean = x.mean(dims, keepdim=True)
        var = (x - mean).square().mean(dims, keepdim=True)
        return change((x - mean) * (var + eps).rsqrt(), input, weight, bias)

    return function


def plain(x_hat, x, weight, bias):
    y = x_hat if weight is None else x_hat * weight
    return (y if bias is None else y + bias).to(x.dtype)


def test_a_weight_without_a_gradient_is_named():
    def detached(x_hat, x, weight, bias):
        return plain(x_hat, x, None if weight is None else weight.detach(), bias)

    assert check_layer(layer_norm_with(plain), like="layer_norm").passed
    report = check_layer(layer_norm_with(detached), like="layer_norm")
    assert "no_dweight" in {f.mistake for f in report.failures}, str(report)


def test_a_function_that_needs_its_parameters_passes_with_a_note():
    def strict(input, normalized_shape, weight, bias, eps=1e-5):
        dims = tuple(range(-len(normalized_shape), 0))
        h = input.float() - input.float().mean(dims, keepdim=True)
        h = h / torch.sqrt((h * h).mean(dims, keepdim=True) + eps)
        return torch.add(0 if bias is None else bias, h * weight).to(input.dtype)

    report = check_layer(strict, like="layer_norm")
    assert report.passed, str(report)
    assert "None" in "".join(report.notes)


def test_half_precision_statistics_are_named():
    def half(input, normalized_shape, weight=None, eps=None):
        eps = torch.finfo(torch.float32).eps if eps is None else eps
        y = input * (input.square().mean(-1, keepdim=True) + eps).rsqrt()
        return y if weight is None else y * weight

    report = check_layer(half, like="rms_norm", shape=(5, 6))
    assert {f.mistake for f in report.failures} == {"half_precision_statistics"}, str(report)
    assert str(report).startswith("conforms to rms_norm in float32 and bfloat16, not in float16: ")
    assert not report.passed


@pytest.mark.parametrize(
    ("mutant", "conventions"),
    [
        ("eps_outside", {"eps_placement": "outside"}),
        ("bessel_corrected", {"divisor": "n-1"}),
        ("bessel_corrected_eps_outside", {"divisor": "n-1", "eps_placement": "outside"}),
        ("other_eps", {"eps": 1e-6}),
    ],
)
def test_declared_conventions_are_not_mistakes(mutant, conventions):
    report = check_layer(LAYER_NORM_MUTANTS[mutant], like="layer_norm", **conventions)
    assert report.passed, str(report)
    assert not check_layer(F.layer_norm, like="layer_norm", **conventions).passed


def test_declared_weight_offset_and_momentum():
    offset = layer_norm_with(lambda h, x, w, b: plain(h, x, None if w is None else 1 + w, b))
    assert check_layer(offset, like="layer_norm", weight_offset=1).passed
    reversed_ = BATCH_NORM_MUTANTS["momentum_reversed"]
    assert not check_layer(reversed_, like="batch_norm", momentum=0.1).passed
    assert check_layer(reversed_, like="batch_norm", momentum=0.5).passed  # cannot be told apart


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: check_layer(F.layer_norm, like="layernorm"), ValueError, "like"),
        (lambda: check_layer(nn.LayerNorm, like="layer_norm"), TypeError, "Construct"),
        (lambda: check_layer(3, like="layer_norm"), TypeError, "layer"),
        (lambda: check_layer(F.layer_norm, like="layer_norm", epsilon=1), TypeError, "epsilon"),
        (
            lambda: check_layer(F.layer_norm, like="layer_norm", call="f(x)"),
            TypeError,
            "call: not a",
        ),
        (lambda: check_layer(F.layer_norm, like="layer_norm", divisor="m"), ValueError, "divisor"),
        (lambda: check_layer(F.layer_norm, like="layer_norm", eps=-1.0), ValueError, "eps"),
        (lambda: check_layer(nn.Identity(), like="layer_norm"), ValueError, "shape="),
        (lambda: check_layer(nn.Flatten(), like="group_norm"), ValueError, "num_groups"),
        (lambda: check_layer(F.group_norm, like="group_norm", num_groups=0), ValueError, "num_gr"),
    ],
)
def test_bad_arguments(call, error, word):
    with pytest.raises(error, match=word):
        call()


def test_identity_and_wrong_shapes_are_reported():
    report = check_layer(nn.Identity(), like="layer_norm", shape=(4, 6))
    assert not report.passed
    report = check_layer(nn.Flatten(0), like="layer_norm", shape=(4, 6))
    assert [f.check for f in report.failures] == ["shape"]
    assert "does not conform" in str(report)


def test_raise_on_failure():
    check_layer(F.layer_norm, like="layer_norm", raise_on_failure=True)
    with pytest.raises(CheckFailed, match="divisor n-1"):
        check_layer(
            LAYER_NORM_MUTANTS["bessel_corrected"], like="layer_norm", raise_on_failure=True
        )


def test_nothing_checked_is_not_passed():
    from normlab.checks import Report

    assert not Report("layer_norm").passed


def test_a_report_can_be_written_as_json():
    import json

    report = check_layer(LAYER_NORM_MUTANTS["other_eps"], like="layer_norm")
    assert "eps is 1e-06" in str(report)
    read = json.loads(json.dumps(report.to_dict()))
    assert read["passed"] is False
    assert read["like"] == "layer_norm"
    assert read["failures"][0]["mistake"] == "other_eps"
    assert len(read["checks"]) == len(report.checks)
