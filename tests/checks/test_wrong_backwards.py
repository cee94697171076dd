"""Wrong backward passes of custom functions, for every family and in two styles."""

import math

import pytest
import torch
from torch import nn

from normlab.checks import check_layer
from normlab.checks.report import sentences_of

EPS32 = torch.finfo(torch.float32).eps


class Rows(torch.autograd.Function):
    """Norm of rows (things, entries), weight and bias spread out to the same shape.

    `mistake` changes one line of the backward pass, written with sums as a kernel does it.
    """

    @staticmethod
    def forward(ctx, rows, w, b, eps, centered, mistake):
        mean = rows.mean(1, keepdim=True) if centered else torch.zeros_like(rows[:, :1])
        rstd = ((rows - mean).square().mean(1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(rows, w, mean, rstd)
        ctx.centered, ctx.mistake = centered, mistake
        return (rows - mean) * rstd * w + b

    @staticmethod
    def backward(ctx, dy):
        rows, w, mean, rstd = ctx.saved_tensors
        mistake, n = ctx.mistake, rows.shape[1]
        x_hat = (rows - mean) * rstd
        g = dy if mistake == "no weight" else dy * w
        if mistake == "no weight in the sums":
            s1, s2 = dy.sum(1, keepdim=True) / n, (dy * x_hat).sum(1, keepdim=True) / n
        else:
            s1, s2 = g.sum(1, keepdim=True) / n, (g * x_hat).sum(1, keepdim=True) / n
        s1 = s1 if ctx.centered and mistake != "no mean" else 0
        s2 = {"no projection": 0 * s2, "sum": s2 * n, "sign": -s2}.get(mistake, s2)
        dx = (g - s1 - x_hat * s2) * (1 if mistake == "no rstd" else rstd)
        if mistake == "zero":
            dx = 0 * dx
        dw = dy * {"raw input": rows, "output": x_hat * w}.get(mistake, x_hat)
        return dx, dw / (7 if mistake == "averaged" else 1), dy, None, None, None


def layer(mistake):
    def function(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        k = len(normalized_shape)
        w = torch.ones(normalized_shape) if weight is None else weight
        b = torch.zeros(normalized_shape) if bias is None else bias
        rows, w, b = (t.expand(x.shape).flatten(-k).flatten(0, -2) for t in (x.float(), w, b))
        return Rows.apply(rows, w, b, eps, True, mistake).reshape(x.shape).to(x.dtype)

    return function


def rms(mistake):
    def function(x, normalized_shape, weight=None, eps=EPS32):
        k = len(normalized_shape)
        w = torch.ones(normalized_shape) if weight is None else weight
        rows, w = (t.expand(x.shape).flatten(-k).flatten(0, -2) for t in (x.float(), w))
        y = Rows.apply(rows, w, torch.zeros_like(w), eps, False, mistake)
        return y.reshape(x.shape).to(x.dtype)

    return function


class Group(nn.Module):
    def __init__(self, mistake, groups=2, size=6):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, size, 1))
        self.shift = nn.Parameter(torch.zeros(1, size, 1))
        self.num_groups, self.mistake = groups, mistake

    def rows(self, t, shape):
        return t.expand(shape).reshape(shape[0] * self.num_groups, -1)

    def forward(self, x):
        parts = (self.rows(t, x.shape) for t in (x.float(), self.scale, self.shift))
        return Rows.apply(*parts, 1e-5, True, self.mistake).reshape(x.shape).to(x.dtype)


class Instance(Group):
    def __init__(self, mistake):
        super().__init__(mistake, groups=6)


class Batch(Group):
    """Statistics of the batch, running ones by torch."""

    def __init__(self, mistake):
        super().__init__(mistake)
        self.inner = nn.BatchNorm1d(6, affine=False)
        del self.num_groups

    def rows(self, t, shape):
        return t.expand(shape).transpose(0, 1).reshape(shape[1], -1)

    def forward(self, x):
        y = self.inner(x)
        if not self.training:
            return y * self.scale + self.shift
        parts = (self.rows(t, x.shape) for t in (x.float(), self.scale, self.shift))
        rows = Rows.apply(*parts, 1e-5, True, self.mistake)
        n, c, length = x.shape
        return rows.reshape(c, n, length).transpose(0, 1).to(x.dtype)


FAMILIES = {
    "layer_norm": (layer, {}),
    "rms_norm": (rms, {}),
    "group_norm": (Group, {"shape": (3, 6, 5)}),
    "instance_norm": (Instance, {"shape": (3, 6, 5)}),
    "batch_norm": (Batch, {"shape": (4, 6, 5)}),
}
MISTAKES = {
    "no mean": {"missing_mean_term"},
    "no projection": {"missing_projection_term"},
    "sum": {"summed_term"},
    "sign": {"wrong_sign"},
    "no weight": {"missing_weight"},
    "no weight in the sums": {"missing_weight"},
    "averaged": {"averaged"},
    "raw input": {"wrong_dweight"},
    "output": {"wrong_dweight", None},  # of a weight of each sample, it is a product of its own
    "zero": {"zero_gradient"},
    "no rstd": {"missing_rstd"},
}


@pytest.mark.parametrize("mistake", ["", *MISTAKES])
@pytest.mark.parametrize("like", FAMILIES)
def test_wrong_gradients_are_named(like, mistake):
    build, options = FAMILIES[like]
    report = check_layer(build(mistake), like=like, **options)
    if not mistake or (like == "rms_norm" and mistake == "no mean"):
        assert report.passed, str(report)
        return
    assert not report.passed
    named = {f.mistake for f in report.failures}
    expected = MISTAKES[mistake]
    if like == "rms_norm" and mistake == "no projection":
        expected = {"detached_statistics"}
    if like in ("batch_norm", "instance_norm") and mistake == "no weight in the sums":
        expected = named  # one weight for all entries: another combination says the same
    assert named <= expected, str(report)
    assert all(f.check.startswith("gradient") for f in report.failures)


def test_two_terms_at_once_are_both_named():
    class NoTerms(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias, eps):
            h = x.float() - x.float().mean(-1, keepdim=True)
            rstd = h.square().mean(-1, keepdim=True).add(eps).rsqrt()
            ctx.save_for_backward(h * rstd, rstd, weight)
            return (h * rstd * weight + bias).to(x.dtype)

        @staticmethod
        def backward(ctx, dy):
            x_hat, rstd, weight = ctx.saved_tensors
            return dy * weight * rstd, (dy * x_hat).mean(0), dy.sum(0), None

    report = check_layer(NoTerms.apply, like="layer_norm", shape=(7, 6))
    assert {f.mistake for f in report.failures} == {"detached_statistics", "averaged"}


def test_a_gradient_of_the_wrong_shape_is_named():
    class Unreduced(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias, eps):
            return nn.functional.layer_norm(x, weight.shape, weight, bias, eps)

        @staticmethod
        def backward(ctx, dy):
            return dy, dy.sum(-1), dy.sum(0), None

    report = check_layer(Unreduced.apply, like="layer_norm", shape=(7, 6))
    assert [f.mistake for f in report.failures] == ["unreduced"], str(report)


def test_a_backward_pass_that_views_is_named():
    class Views(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias, eps):
            ctx.save_for_backward(x, weight, bias)
            ctx.eps = eps
            return nn.functional.layer_norm(x, weight.shape, weight, bias, eps)

        @staticmethod
        def backward(ctx, dy):
            leaves = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            flat = dy.view(-1).view(dy.shape)
            with torch.enable_grad():
                y = nn.functional.layer_norm(leaves[0], leaves[1].shape, *leaves[1:], ctx.eps)
            return *torch.autograd.grad(y, leaves, flat), None

    report = check_layer(Views.apply, like="layer_norm", shape=(7, 6))
    assert [f.mistake for f in report.failures] == ["non_contiguous"], str(report)
    assert "view" in str(report)


class ByFirstAxis(torch.autograd.Function):
    """A layer norm whose backward pass takes the number of rows from the first axis."""

    @staticmethod
    def forward(ctx, x, shape, weight, bias, eps):
        n = math.prod(shape)
        rows = x.reshape(-1, n).float()
        mean = rows.mean(1, keepdim=True)
        rstd = (rows.var(1, keepdim=True, correction=0) + eps).rsqrt()
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        x_hat = ((rows - mean) * rstd).reshape(*x.shape[: -len(shape)], *shape)
        x_hat = x_hat if weight is None else x_hat * weight.float()
        return (x_hat if bias is None else x_hat + bias.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        x, weight, bias, mean, rstd = ctx.saved_tensors
        m = max(len(x), 1)
        rows, g, n = x.reshape(m, -1).float(), dy.reshape(m, -1).float(), mean.shape[0]
        size = x.numel() // max(n, 1)
        x_hat, by_x = (rows - mean[:m]) * rstd[:m], g
        if weight is not None:
            by_x = torch.cat([g[:, :size] * weight.float().flatten(), 0 * g[:, size:]], 1)
        means = by_x.mean(1, keepdim=True), (by_x * x_hat).mean(1, keepdim=True)
        dx = rstd[:m] * (by_x - means[0] - x_hat * means[1])
        sums = (g * x_hat).sum(0)[:size], g.sum(0)[:size]
        both = (
            None if p is None else s.reshape(p.shape).to(p.dtype)
            for p, s in zip((weight, bias), sums, strict=True)
        )
        return dx.reshape(x.shape).to(x.dtype), None, *both, None


def by_first_axis(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return ByFirstAxis.apply(input, tuple(normalized_shape), weight, bias, eps)


class OfFirstAxis(nn.LayerNorm):
    def forward(self, x):
        return by_first_axis(x, self.normalized_shape, self.weight, self.bias, self.eps)


@pytest.mark.parametrize("layer", [by_first_axis, OfFirstAxis(16)], ids=["function", "module"])
def test_gradients_that_are_right_for_rows_alone_say_so(layer):
    report = check_layer(layer, like="layer_norm")
    assert {f.check for f in report.failures} == {
        "gradient, ordinary input",
        "gradient, small input",
    }
    (sentence,) = sentences_of(report.failures)
    assert "by the input, the weight and the bias: right for 2 axes, wrong for 3" in sentence
    rows = check_layer(layer, like="layer_norm", shape=(5, 16), empty=False)
    assert rows.passed, str(rows)  # for which it is right
    deep = check_layer(layer, like="layer_norm", shape=(2, 5, 16))
    assert "right for" not in str(deep) and len(sentences_of(deep.failures)) == 1


def test_what_is_wrong_for_every_number_of_axes_says_no_number():
    report = check_layer(layer("raw input"), like="layer_norm")
    assert not report.passed and "axes" not in str(report)
