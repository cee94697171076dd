"""check_layer: each subset of input, weight and bias may need a gradient."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab import check_layer


class Function(torch.autograd.Function):
    """Layer norm of rows, or RMS norm; `mistake` is what its backward pass asks for."""

    @staticmethod
    def forward(ctx, x, weight, bias, centered, mistake):
        h = x - x.mean(-1, keepdim=True) if centered else x
        rstd = (h.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        ctx.save_for_backward(h * rstd, rstd, weight)
        ctx.centered, ctx.mistake = centered, mistake
        y = h * rstd * weight
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx, dy):
        (x_hat, rstd, weight), mistake = ctx.saved_tensors, ctx.mistake
        by_x, by_weight, by_bias = ctx.needs_input_grad[:3]
        dx = dweight = dbias = None
        if by_x:
            g = dy * weight
            mean = g.mean(-1, keepdim=True) if ctx.centered else 0.0
            dx = rstd * (g - mean - x_hat * (g * x_hat).mean(-1, keepdim=True))
        if by_weight:
            dweight = (dy * x_hat).flatten(0, -2).sum(0)
        if by_bias:
            dbias = dy.flatten(0, -2).sum(0)
        if mistake == "bias with weight" and not by_weight:
            dbias = None
        if mistake == "weight with bias" and not by_bias:
            dweight = None
        if mistake == "adapted" and not by_weight:  # nothing but the path through the scale
            dx = rstd * dy * weight
        if mistake == "all or none" and not all(ctx.needs_input_grad[:3]):
            raise RuntimeError("one of the gradients is None")
        if mistake == "parameters with input" and not by_x:
            dweight, dbias = None, None
        if mistake == "zero with bias alone" and not (by_x or by_weight):
            dbias = torch.zeros_like(weight)
        return dx, dweight, dbias, None, None


class Layer(nn.Module):
    def __init__(self, mistake="", *, frozen=()):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        for name in frozen:
            getattr(self, name).requires_grad_(False)
        self.mistake = mistake

    def forward(self, x):
        parameters = self.weight.float(), self.bias.float()
        return Function.apply(x.float(), *parameters, True, self.mistake).to(x.dtype)


def layer_norm(mistake):
    def function(x, weight, bias):
        y = Function.apply(x.float(), weight.float(), bias.float(), True, mistake)
        return y.to(x.dtype)

    return function


def rms_norm(mistake):
    def function(x, weight):
        return Function.apply(x.float(), weight.float(), None, False, mistake).to(x.dtype)

    return function


class GroupsWithoutGraph(nn.GroupNorm):
    """It skips autograd where nothing of its own is trained."""

    def forward(self, x):
        with torch.set_grad_enabled(self.weight.requires_grad or self.bias.requires_grad):
            return super().forward(x)


class BatchWithFrozenFactor(nn.BatchNorm1d):
    """A frozen weight is taken for one that was folded, and is applied twice."""

    def forward(self, x):
        y = super().forward(x)
        if not self.weight.requires_grad:
            y.register_hook(lambda dy: 2 * dy)
        return y


WRONG = {
    "forgets the bias": (
        lambda: Layer("bias with weight"),
        "layer_norm",
        "where the weight needs no gradient, the gradient by the bias is missing",
    ),
    "forgets the bias, handed over frozen": (
        lambda: Layer("bias with weight", frozen=["weight"]),
        "layer_norm",
        "the gradient by the bias is missing",
    ),
    "forgets the weight": (
        lambda: layer_norm("weight with bias"),
        "layer_norm",
        "where the bias needs no gradient, the gradient by the weight is missing",
    ),
    "adapted": (
        lambda: layer_norm("adapted"),
        "layer_norm",
        "where the weight needs no gradient, the gradient by the input is wrong",
    ),
    "adapted, without a bias": (
        lambda: rms_norm("adapted"),
        "rms_norm",
        "where the weight needs no gradient, the gradient by the input is wrong",
    ),
    "parameters with input": (
        lambda: Layer("parameters with input"),
        "layer_norm",
        "where the input needs no gradient, the gradient by the weight is missing",
    ),
    "the bias alone": (
        lambda: Layer("zero with bias alone"),
        "layer_norm",
        "where the input and the weight need no gradient, the gradient by the bias is zero",
    ),
    "all or none": (lambda: layer_norm("all or none"), "layer_norm", "it raises RuntimeError"),
    "groups": (
        lambda: GroupsWithoutGraph(2, 8),
        "group_norm",
        "where the weight and the bias need no gradient, the gradient by the input is missing",
    ),
    "batch": (
        lambda: BatchWithFrozenFactor(6),
        "batch_norm",
        "where the weight needs no gradient, the gradient by the input is wrong",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_frozen_parameter_makes_wrong_is_named(name):
    make, like, words = WRONG[name]
    report = check_layer(make(), like=like, eps=1e-5)
    assert [f.mistake for f in report.failures] == ["frozen"], report
    assert words in report.failures[0].message


@pytest.mark.parametrize(
    ("layer", "like"),
    [
        (Layer(), "layer_norm"),
        (Layer(frozen=["weight"]), "layer_norm"),
        (Layer(frozen=["weight", "bias"]), "layer_norm"),
        (layer_norm(""), "layer_norm"),
        (rms_norm(""), "rms_norm"),
        (nn.BatchNorm1d(6).requires_grad_(False), "batch_norm"),
        (nn.GroupNorm(2, 8).requires_grad_(False), "group_norm"),
        (lambda x, *rest: F.layer_norm(x, *rest), "layer_norm"),
    ],
)
def test_a_layer_that_is_right_with_frozen_parameters_passes(layer, like):
    report = check_layer(layer, like=like, eps=1e-5)
    assert report.passed, report
    assert "frozen parameters" in report.checks
