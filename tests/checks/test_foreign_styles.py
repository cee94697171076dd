"""check_layer: right layers in styles that people use are not called wrong, and wrong ones are."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_version import script

from normlab import check_layer
from normlab.commands import main


class FusedResidual(nn.Module):
    def __init__(self, *, bessel: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.bias = nn.Parameter(torch.zeros(8))
        self.bessel = bessel

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        h = total.float()
        var = h.var(-1, keepdim=True, correction=int(self.bessel))
        y = (h - h.mean(-1, keepdim=True)) * torch.rsqrt(var + 1e-5)
        return (y * self.weight + self.bias).to(x.dtype), total


def parameters_first(weight: Tensor, x: Tensor, eps: float = 1e-6) -> Tensor:
    h = x.float()
    y = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)
    return (y * weight).to(x.dtype)


def parameters_first_wrong(weight: Tensor, x: Tensor, eps: float = 1e-6) -> Tensor:
    h = x.float()
    return (h / (h.square().mean(-1, keepdim=True).sqrt() + eps) * weight).to(x.dtype)


def unusual(scale_in: Tensor, block: Tensor) -> tuple[Tensor, None]:
    return F.rms_norm(block, scale_in.shape, scale_in, 1e-6), None


def bfloat16_only(x: Tensor, normalized_shape, weight=None, bias=None, eps=1e-5) -> Tensor:
    if x.dtype != torch.bfloat16:
        raise TypeError("bfloat16 alone")
    return F.layer_norm(x, normalized_shape, weight, bias, eps)


def bfloat16_only_wrong(x: Tensor, normalized_shape, weight=None, bias=None, eps=1e-5) -> Tensor:
    y = bfloat16_only(x, normalized_shape, None, None, eps)
    return y if weight is None else y * (1 + weight) + (0 if bias is None else bias)


def in_numpy(x: Tensor, weight: Tensor) -> Tensor:
    h = x.detach().numpy().astype(np.float64)
    y = h / np.sqrt(np.square(h).mean(-1, keepdims=True) + 1e-6) * weight.detach().numpy()
    return torch.from_numpy(y.astype(np.float32))


class ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, weight, rstd)
        return x * rstd * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        x_hat, g = x * rstd, dy * weight
        dx = rstd * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))
        return dx, (dy * x_hat).flatten(0, -2).sum(0)


class ForgetsProjection(ByHand):
    @staticmethod
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        return rstd * dy * weight, (dy * x * rstd).flatten(0, -2).sum(0)


def by_hand(function):
    return lambda x, weight: function.apply(x.float(), weight.float()).to(x.dtype)


class InPlace(nn.Module):
    """Works in place, on a copy of its own."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))
        self.bias = nn.Parameter(torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float() - x.float().mean(-1, keepdim=True)
        y = y.div(y.square().mean(-1, keepdim=True).add_(1e-5).sqrt_())
        return y.mul_(self.weight).add_(self.bias).to(x.dtype)


class ChannelsLast(nn.Module):
    """Over the channels of (N, C, H, W), which it moves last and back."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x.permute(0, 2, 3, 1), (6,), self.weight, self.bias)
        return y.permute(0, 3, 1, 2)


class WithoutResidual(nn.Module):
    """A fused layer, made into one that takes its input alone and returns one tensor."""

    def __init__(self, fused: nn.Module):
        super().__init__()
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        return self.fused(x, torch.zeros_like(x))[0]


RIGHT = {
    "fused residual, a pair": (WithoutResidual(FusedResidual()), "layer_norm", {}),
    "parameters first": (parameters_first, "rms_norm", {"eps": 1e-6}),
    "parameters first, wrapped": (
        lambda x, weight: unusual(weight, x)[0],
        "rms_norm",
        {"eps": 1e-6},
    ),
    "bfloat16 only": (bfloat16_only, "layer_norm", {"dtype": "bfloat16"}),
    "NumPy": (
        in_numpy,
        "rms_norm",
        {"eps": 1e-6, "forward_only": True, "dtypes": ["float32"]},
    ),
    "channels last": (ChannelsLast(), "layer_norm", {"shape": (2, 6, 5, 4)}),
    "autograd.Function": (by_hand(ByHand), "rms_norm", {"eps": 1e-6}),
    "lambda": (lambda x, w, b: F.layer_norm(x, w.shape, w, b), "layer_norm", {}),
    "in place": (InPlace(), "layer_norm", {}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_layer_in_a_foreign_style_passes(name):
    layer, like, options = RIGHT[name]
    report = check_layer(layer, like=like, **options)
    assert report.passed, str(report)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_layer_passes():
    report = check_layer(script(nn.LayerNorm(6)), like="layer_norm")
    assert report.passed, str(report)


WRONG = {
    "fused residual": (WithoutResidual(FusedResidual(bessel=True)), "layer_norm", {}, "bessel"),
    "parameters first": (parameters_first_wrong, "rms_norm", {"eps": 1e-6}, "eps_outside"),
    "bfloat16 only": (
        bfloat16_only_wrong,
        "layer_norm",
        {"dtype": torch.bfloat16},
        "weight_offset",
    ),
    "NumPy": (
        lambda x, weight: in_numpy(x, weight) * 1.5,
        "rms_norm",
        {"eps": 1e-6, "forward_only": True, "dtypes": ["float32"]},
        None,
    ),
    "autograd.Function": (by_hand(ForgetsProjection), "rms_norm", {"eps": 1e-6}, None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_layer_in_a_foreign_style_does_not(name):
    layer, like, options, mistake = WRONG[name]
    report = check_layer(layer, like=like, **options)
    assert not report.passed
    assert mistake is None or any(mistake in (f.mistake or "") for f in report.failures)


def test_what_could_not_be_tested_says_what_to_pass():
    with pytest.raises(ValueError, match=r"could not be tested.*wrap it.*args\)\[0\]"):
        check_layer(lambda x, w, b: (F.layer_norm(x, w.shape, w, b), x), like="layer_norm")
    with pytest.raises(ValueError, match=r"Pass dtype='bfloat16'.*cast inside"):
        check_layer(bfloat16_only, like="layer_norm")
    with pytest.raises(ValueError, match=r"missing 1 required positional argument: 'residual'"):
        check_layer(FusedResidual(), like="layer_norm")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": "float12"}, "dtype: got 'float12'"),
        ({"dtypes": ["half"]}, "dtypes: got 'half'"),
    ],
)
def test_bad_options_are_named(options, text):
    with pytest.raises(ValueError, match=text):
        check_layer(F.layer_norm, like="layer_norm", **options)


def test_the_scope_leaves_out_what_it_says():
    everything = check_layer(nn.LayerNorm(6), like="layer_norm")
    forward = check_layer(nn.LayerNorm(6), like="layer_norm", forward_only=True)
    assert any("gradient" in c for c in everything.checks)
    assert not any("gradient" in c for c in forward.checks)
    single = check_layer(nn.LayerNorm(6), like="layer_norm", dtypes=["float32"])
    assert not any("float16" in c for c in single.checks)
    assert any("float16" in sentence for sentence in single.untested)
    few = check_layer(nn.LayerNorm(6), like="layer_norm", empty=False, batch_of_one=False)
    assert set(everything.checks) - set(few.checks) == {"empty input", "batch of one"}


def test_one_line_a_mistake_with_its_inputs_counted():
    def outside(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        h = x.double()
        y = (h - h.mean(-1, keepdim=True)) / (h.std(-1, keepdim=True, correction=0) + eps)
        y = y if weight is None else y * weight
        return (y if bias is None else y + bias).to(x.dtype)

    report = check_layer(outside, like="layer_norm", shape=(4, 8))
    lines = [line for line in str(report).splitlines() if "sqrt(var + eps), not" in line]
    assert len(lines) == 1
    assert "inputs)" in lines[0]
    assert sum(f.mistake == "eps_outside" for f in report.failures) > 1


def doubling(graph, inputs):
    """A compiler that is wrong: it doubles every result."""
    return lambda *args: tuple(2 * y for y in graph(*args))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backend", ["eager", doubling], ids=["right", "wrong"])
def test_a_compiled_layer_is_compared_once_compiled(backend):
    report = check_layer(torch.compile(nn.LayerNorm(6), backend=backend), like="layer_norm")
    assert "compiled" in report.checks
    assert [f.mistake for f in report.failures] == ["compiled_differs"] * (backend is doubling)


BY_CALL = ["--call", "f(weight, x)", "--select", "[0]", "--eps", "1e-6"]
RESIDUAL = ["--call", "f(x, torch.zeros_like(x))", "--select", "[0]"]


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        (["unusual", "--like", "rms_norm", *BY_CALL], None),
        (["FusedResidual", "--like", "layer_norm", *RESIDUAL], None),
        (
            ["FusedResidual", "--init", "bessel=True", "--like", "layer_norm", *RESIDUAL],
            "bessel",
        ),
    ],
    ids=["parameters first", "fused residual", "fused residual, wrong"],
)
def test_the_command_line_says_how_a_layer_is_called(words, mistake, capsys):
    name, *options = words
    assert main(["check", f"{__file__}:{name}", *options, "--json"]) == (
        0 if mistake is None else 1
    )
    failures = json.loads(capsys.readouterr().out)["failures"]
    assert mistake is None or any(mistake in (f["mistake"] or "") for f in failures)
