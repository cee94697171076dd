"""check_layer: values at which layers that are right elsewhere are wrong, in each dtype."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab import check_layer


def affine(y, weight, bias=None):
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def last(normalized_shape):
    return tuple(range(-len(normalized_shape), 0))


# --- gradients at 0: eps outside the root, or a clamp --------------------------------------------


def clamped(x, weight=None, eps=1e-6):
    h = x.float()
    return affine(h / h.square().sum(-1, keepdim=True).sqrt().clamp_min(eps), weight).to(x.dtype)


def normalized(x, weight=None, eps=1e-6):
    return affine(F.normalize(x.float(), dim=-1, eps=eps), weight).to(x.dtype)


def clamped_inside(x, weight=None, eps=1e-6):
    h = x.float()
    root = h.square().sum(-1, keepdim=True).clamp_min(eps**2).sqrt()
    return affine(h / root, weight).to(x.dtype)


def outside(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    h = x.float() - x.float().mean(last(normalized_shape), keepdim=True)
    root = h.square().mean(last(normalized_shape), keepdim=True).sqrt()
    return affine(h / (root + eps), weight, bias).to(x.dtype)


def outside_by_std(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    h = x.float() - x.float().mean(last(normalized_shape), keepdim=True)
    root = h.std(last(normalized_shape), correction=0, keepdim=True)
    return affine(h / (root + eps), weight, bias).to(x.dtype)


def where(x, normalized_shape, weight=None, eps=1e-4, *, masked=False):
    """The branch that is not taken gives 0 times infinity to the gradient."""
    h = x.float()
    square = h.square().mean(last(normalized_shape), keepdim=True)
    small = square < eps
    root = torch.where(small, 1.0, square).sqrt() if masked else square.sqrt()
    return affine(h / torch.where(small, eps**0.5, root), weight).to(x.dtype)


def masked(x, normalized_shape, weight=None, eps=1e-4):
    return where(x, normalized_shape, weight, eps, masked=True)


def grouped(x, num_groups, weight=None, bias=None, eps=1e-5):
    h = x.float().reshape(x.shape[0], num_groups, -1)
    h = h - h.mean(-1, keepdim=True)
    y = (h / (h.square().mean(-1, keepdim=True) ** 0.5 + eps)).reshape(x.shape).movedim(1, -1)
    return affine(y, weight, bias).movedim(-1, 1).to(x.dtype)


def grouped_by_norm(x, num_groups, weight=None, bias=None, eps=1e-5):
    h = x.float().reshape(x.shape[0], num_groups, -1)
    h = h - h.mean(-1, keepdim=True)
    root = h.norm(dim=-1, keepdim=True) / h.shape[-1] ** 0.5
    y = (h / (root + eps)).reshape(x.shape).movedim(1, -1)
    return affine(y, weight, bias).movedim(-1, 1).to(x.dtype)


class Powers(torch.autograd.Function):
    """RMS norm; a wrong backward pass takes rstd³ from a sixth power, or divides 0 by 0."""

    @staticmethod
    def forward(ctx, x, weight, mistake):
        square = x.square().mean(-1, keepdim=True)
        ctx.save_for_backward(x, weight, square)
        ctx.mistake = mistake
        return x * (square + 1e-6).rsqrt() * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight, square = ctx.saved_tensors
        rstd, g = (square + 1e-6).rsqrt(), dy * weight
        dx = rstd * (g - x * rstd * (g * x * rstd).mean(-1, keepdim=True))
        if ctx.mistake == "sixth power":
            dx = rstd * g - x * (g * x).mean(-1, keepdim=True) / (square + 1e-6).pow(3).sqrt()
        if ctx.mistake == "0 / 0":
            dx = dx * (square / square)
        if ctx.mistake == "small alike":
            dx = torch.where(square < 1e-8, torch.zeros_like(dx), dx)
        return dx, (dy * x * rstd).sum(0), None


def powers(mistake):
    return lambda x, weight: Powers.apply(x.float(), weight.float(), mistake).to(x.dtype)


OUTSIDE = {"like": "layer_norm", "eps_placement": "outside"}
GROUPS = {"like": "group_norm", "eps_placement": "outside"}
CLAMP = {"like": "rms_norm", "eps_placement": "clamp", "eps": 1e-4}
RMS = {"like": "rms_norm", "eps": 1e-6, "shape": (5, 6)}
GRADIENTS = {
    "clamp": (clamped, {"like": "scale_norm", "eps": 1e-6}, "a row of zeros is NaN"),
    "outside": (outside, OUTSIDE, "a row of zeros is NaN: take the root of (var + eps)"),
    "where": (where, CLAMP, "a row of zeros is NaN: take the root of (mean + eps)"),
    "groups": (grouped, GROUPS, "a group of zeros is NaN"),
    "0 / 0": (powers("0 / 0"), RMS, "a row of zeros is NaN"),
    "sixth power": (powers("sixth power"), RMS, "a row of large values is off by"),
    "small rows have none": (powers("small alike"), RMS, "a row of zeros is off by"),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_wrong_gradient_at_special_values_is_named(name):
    layer, options, words = GRADIENTS[name]
    report = check_layer(layer, **options, dtypes=["float32"])
    assert [f.check for f in report.failures] == ["special values"], report
    assert f"the gradient of {words}" in report.failures[0].message


RIGHT = {
    "clamp of torch": (normalized, {"like": "scale_norm", "eps": 1e-6}),
    "clamp before the root": (clamped_inside, {"like": "scale_norm", "eps": 1e-6}),
    "outside, torch's std": (outside_by_std, OUTSIDE),
    "masked": (masked, CLAMP),
    "groups, torch's norm": (grouped_by_norm, GROUPS),
    "backward pass of its own": (powers(""), RMS),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_gradient_at_special_values_passes(name):
    layer, options = RIGHT[name]
    report = check_layer(layer, **options)
    assert report.passed, report
    assert "special values" in report.checks


# --- eps in 16 bits ------------------------------------------------------------------------------


class HeldEps(nn.Module):
    """Its eps is a buffer, which a cast of the module takes along."""

    like, center = "layer_norm", True

    def __init__(self, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))
        self.register_buffer("eps", torch.tensor(eps))

    def forward(self, x):
        h = x.float()
        h = h - h.mean(-1, keepdim=True) if self.center else h
        y = h * (h.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (y * self.weight).to(x.dtype)


class HeldEpsRMS(HeldEps):
    like, center = "rms_norm", False


class HeldEpsGroups(HeldEps):
    like, num_groups = "group_norm", 2

    def forward(self, x):
        h = x.float().reshape(len(x), self.num_groups, -1)
        h = h - h.mean(-1, keepdim=True)
        h = (h * (h.square().mean(-1, keepdim=True) + self.eps).rsqrt()).reshape(x.shape)
        return (h * self.weight.view(-1, *[1] * (x.dim() - 2))).to(x.dtype)


class EpsOfTheInput(HeldEps):
    """Its eps gets the dtype of the input at each call."""

    def forward(self, x):
        h = x.float() - x.float().mean(-1, keepdim=True)
        root = (h.square().mean(-1, keepdim=True) + x.new_tensor(1e-8)).sqrt()
        return (h / root * self.weight).to(x.dtype)


class FloatEps(HeldEps):
    def __init__(self, eps):
        super().__init__(eps)
        del self.eps
        self.eps = eps


@pytest.mark.parametrize("kind", [HeldEps, HeldEpsRMS, HeldEpsGroups, EpsOfTheInput])
def test_an_eps_that_16_bits_do_not_have_is_named(kind):
    report = check_layer(kind(1e-8), like=kind.like, eps=1e-8)
    (failure,) = report.failures
    assert failure.mistake == "eps_underflows", report
    assert failure.check == "float16, special values"
    assert "is NaN in float16: eps 1e-08 is 0 in float16" in failure.message


@pytest.mark.parametrize(
    ("kind", "eps"), [(HeldEps, 1e-5), (HeldEpsRMS, 1e-6), (HeldEpsGroups, 1e-3), (FloatEps, 1e-8)]
)
def test_an_eps_that_16_bits_have_or_that_is_no_tensor_is_right(kind, eps):
    report = check_layer(kind(eps), like=kind.like, eps=eps)
    assert report.passed, report
