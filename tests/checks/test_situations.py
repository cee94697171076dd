"""check_layer: layers that are right for ordinary inputs, and wrong in other situations."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab import check_layer


class Function(torch.autograd.Function):
    """Layer norm with a backward pass of its own; `mistake` is one of use."""

    @staticmethod
    def forward(ctx, x, weight, bias, module):
        h = x.double()
        mean = h.mean(-1, keepdim=True)
        rstd = ((h - mean).square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        ctx.module, ctx.own = module, (mean, rstd)
        module.last = ctx.own
        ctx.save_for_backward(x, weight)
        return ((h - mean) * rstd * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (x, weight), mistake = ctx.saved_tensors, ctx.module.mistake
        mean, rstd = ctx.module.last if mistake == "keeps on the module" else ctx.own
        g, x_hat = dy.double(), (x.double() - mean) * rstd
        gw = g * weight
        dx = gw - gw.mean(-1, keepdim=True) - x_hat * (gw * x_hat).mean(-1, keepdim=True)
        rows = slice(128) if mistake == "128 rows" else slice(None)
        dw, db = ((t.flatten(0, -2)[rows]).sum(0) for t in (g * x_hat, g))
        dx = dx * rstd
        if mistake == "16 bits" and x.dtype in (torch.float16, torch.bfloat16):
            dx = gw * rstd
        if mistake == "batch of one" and len(x) == 1:
            dx = 0 * dx
        if mistake == "empty" and not len(x):
            raise RuntimeError("invalid configuration argument")
        if mistake == "zero weight":
            dw = dw * weight / weight
        if mistake == "damages input":
            x.data.zero_()
        if mistake == "damages statistics":
            rstd.mul_(2)
        if mistake == "strided weight" and not dy.is_contiguous():
            dw = 2 * dw
        if mistake == "expanded" and 0 in dy.stride() and len(dy) > 1:
            dx, dw, db = 0 * dx, 0 * dw, 0 * db
        if mistake == "frozen input" and not ctx.needs_input_grad[0]:
            return None, None, None, None
        dw, db = dw.to(weight.dtype), db.to(weight.dtype)
        if mistake == "overwrites":
            ctx.module.weight.grad, ctx.module.bias.grad = dw, db
            return dx.to(x.dtype), None, None, None
        return dx.to(x.dtype), dw, db, None


class Layer(nn.Module):
    def __init__(self, mistake=""):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        self.mistake = mistake

    def forward(self, x):
        return Function.apply(x, self.weight, self.bias, self)


class Counting(nn.LayerNorm):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) if self.calls <= 5 else x


class OneBuffer(nn.LayerNorm):
    kept = None

    def forward(self, x):
        y = super().forward(x)
        if self.kept is None or self.kept.shape != y.shape or self.kept.dtype != y.dtype:
            self.kept = torch.empty_like(y).detach()
        y.data = self.kept.copy_(y.data)
        return y


class FirstStatistics(nn.LayerNorm):
    kept = None

    def forward(self, x):
        if self.kept is None or self.kept.shape[:-1] != x.shape[:-1]:
            self.kept = x.mean(-1, keepdim=True).detach()
            return super().forward(x)
        return super().forward(x - x.mean(-1, keepdim=True) + self.kept * x.square())


class Double(nn.LayerNorm):
    def forward(self, x):
        return 2 * super().forward(x) if x.dtype == torch.float64 else super().forward(x)


class AbsoluteWeight(nn.BatchNorm1d):
    def forward(self, x):
        y = F.batch_norm(x, self.running_mean, self.running_var, None, None, self.training)
        shape = (1, -1) + (1,) * (x.dim() - 2)
        return y * self.weight.abs().view(shape) + self.bias.view(shape)


class EvaluatesWithoutGradient(nn.BatchNorm1d):
    def forward(self, x):
        with torch.set_grad_enabled(self.training):
            return super().forward(x)


class EvaluatesAloneByItself(nn.BatchNorm2d):
    def forward(self, x):
        if not self.training and len(x) == 1:
            return F.batch_norm(x, None, None, self.weight, self.bias, True)
        return super().forward(x)


class RecordsWithGradientAlone(nn.BatchNorm1d):
    def forward(self, x):
        self.momentum = 0.1 if torch.is_grad_enabled() else 0.0
        return super().forward(x)


class LayerWithoutGradient(nn.LayerNorm):
    def forward(self, x):
        with torch.set_grad_enabled(self.training):
            return super().forward(x)


class MeanOfVariances(nn.BatchNorm1d):
    """Of any rank; with positions, the variance leaves out that their means differ."""

    def _check_input_dim(self, input):
        assert input.dim() > 1

    def forward(self, x):
        y = super().forward(x)
        if x.dim() == 2 or not self.training:
            return y
        axes, view = tuple(range(2, x.dim())), (1, -1) + (1,) * (x.dim() - 2)
        var = x.var(0, correction=0).mean([a - 1 for a in axes]).view(view)
        x_hat = (x - x.mean([0, *axes]).view(view)) / (var + self.eps).sqrt()
        return x_hat * self.weight.view(view) + self.bias.view(view)


class Rows(nn.RMSNorm):
    """A grid that ends at so many rows."""

    limit = 1024

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        y = torch.cat([super().forward(rows[: self.limit]), rows[self.limit :]])
        return y.view(x.shape)


class ManyRows(Rows):
    limit = 4096


def reading(block):
    """A layer norm whose statistics are of the first columns alone."""

    def columns(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        h = x.double().flatten(-len(normalized_shape))
        var, mean = torch.var_mean(h[..., :block], -1, correction=0, keepdim=True)
        y = ((h - mean) * (var + eps).rsqrt()).view(x.shape)
        y = y if weight is None else y * weight
        return (y if bias is None else y + bias).to(x.dtype)

    return columns


WRONG = {
    "128 rows": ("large input", "the gradient by the weight"),
    "16 bits": ("bfloat16, special values", "the gradient of a row of zeros"),
    "batch of one": ("batch of one", "the gradient by the input"),
    "empty": ("empty input", "raises"),
    "zero weight": ("factor of 0", "Keep x or x_hat for the backward pass"),
    "keeps on the module": ("used again", "after a second call"),
    "damages input": ("used again", "writes into the input"),
    "damages statistics": ("used again", "second backward pass"),
    "overwrites": ("used again", "added to that of another call"),
    "frozen input": ("frozen parameters", "where the input needs no gradient"),
    Counting: ("used again", "after 12 more calls"),
    OneBuffer: ("evaluation", "into the output of the first"),
    FirstStatistics: ("evaluation", "still uses what it kept from before that step"),
    Double: ("float64 input", "the output is off"),
    AbsoluteWeight: ("weight of either sign", "the output is off"),
    Rows: ("large input", "the output is off"),
    ManyRows: ("large input", "the output is off"),
}


OTHERS = {
    EvaluatesWithoutGradient: ("batch_norm", "evaluation", "the gradient by the input"),
    LayerWithoutGradient: ("layer_norm", "evaluation", "the gradient dx"),
    EvaluatesAloneByItself: ("batch_norm", "evaluation", "statistics of the batch"),
    RecordsWithGradientAlone: ("batch_norm", "running statistics", "do not move"),
    MeanOfVariances: ("batch_norm", "ordinary input", "no known mistake"),
}


@pytest.mark.parametrize("mistake", WRONG, ids=str)
def test_what_is_wrong_in_one_situation_alone_is_named(mistake):
    layer = Layer(mistake) if isinstance(mistake, str) else mistake(6)
    of = {AbsoluteWeight: "batch_norm", Rows: "rms_norm", ManyRows: "rms_norm"}
    like = of.get(mistake, "layer_norm")
    report = check_layer(layer, like=like)
    check, words = WRONG[mistake]
    assert check in {f.check for f in report.failures}, report
    assert any(words in f.message for f in report.failures), report


@pytest.mark.parametrize("layer", OTHERS, ids=lambda layer: layer.__name__)
def test_what_is_wrong_in_evaluation_or_at_one_rank_alone_is_named(layer):
    like, check, words = OTHERS[layer]
    report = check_layer(layer(6), like=like)
    assert check in {f.check for f in report.failures}, report
    assert any(words in f.message for f in report.failures), report


@pytest.mark.parametrize("mistake", ["strided weight", "expanded"])
def test_gradients_for_strided_upstream_gradients_are_compared(mistake):
    report = check_layer(Layer(mistake), like="layer_norm")
    assert [f.mistake for f in report.failures] == ["non_contiguous"], report


@pytest.mark.parametrize("block", [256, 4096])
def test_a_function_that_reads_its_first_columns_alone_is_named(block):
    report = check_layer(reading(block), like="layer_norm")
    assert {f.check for f in report.failures} == {"other widths"}


def test_the_same_layer_without_a_mistake_passes():
    report = check_layer(Layer(), like="layer_norm")
    assert report.passed, report
    assert {check for check, _ in WRONG.values()} <= set(report.checks)
