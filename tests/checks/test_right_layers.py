"""Right layers in many styles: check_layer must not raise a false alarm."""

import functools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from normlab.checks import check_layer

# --- LayerNorm and RMSNorm as functions ---------------------------------------------------------


def powers(x, shape, gamma=None, beta=None, epsilon=1e-5):
    """Other names, chained methods."""
    axes = list(range(-len(shape), 0))
    h = x.float()
    h = h.sub(h.mean(axes, keepdim=True))
    h = h.mul(h.pow(2).mean(axes, keepdim=True).add(epsilon).pow(-0.5))
    h = h if gamma is None else h.mul(gamma)
    return (h if beta is None else h.add(beta)).to(x.dtype)


def flattened(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Rows times columns, matrix products for the means, addcmul for the end."""
    n = math.prod(normalized_shape)
    rows = input.reshape(input.numel() // n, n).double()
    average = torch.full((n, 1), 1 / n, dtype=torch.float64)
    rows = rows - rows @ average
    rows = rows / ((rows * rows) @ average + eps).sqrt()
    y = rows.reshape(input.shape)
    w = torch.ones(tuple(normalized_shape)) if weight is None else weight
    b = torch.zeros(tuple(normalized_shape)) if bias is None else bias
    return torch.addcmul(b.double(), y, w.double()).to(input.dtype)


def through_var_mean(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    axes = tuple(range(input.dim() - len(normalized_shape), input.dim()))
    var, mean = torch.var_mean(input.float(), axes, correction=0, keepdim=True)
    out = (input.float() - mean) * torch.rsqrt(var + eps)
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    return out.type_as(input)


def keywords(x, *, normalized_shape, scale=None, shift=None, eps=1e-5):
    return F.layer_norm(x, normalized_shape, scale, shift, eps)


def without_shape(x, weight=None, bias=None, eps=1e-5):
    """Last axis only, and says so by its signature."""
    centered = x.float() - torch.einsum("...i->...", x.float()).unsqueeze(-1) / x.shape[-1]
    var = torch.einsum("...i,...i->...", centered, centered).unsqueeze(-1) / x.shape[-1]
    h = centered * (var + eps).rsqrt()
    h = h if weight is None else h * weight
    return (h if bias is None else h + bias).to(x.dtype)


def native(x, shape, weight=None, bias=None, eps=1e-5):
    return torch.native_layer_norm(x, shape, weight, bias, eps)[0]


def data_only(x):
    return F.layer_norm(x, x.shape[-1:])


def welford(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """One pass over the features that does not cancel."""
    n = math.prod(normalized_shape)
    rows = input.float().reshape(input.numel() // n, n)
    mean = rows.new_zeros(len(rows))
    m2 = rows.new_zeros(len(rows))
    for k in range(n):
        delta = rows[:, k] - mean
        mean = mean + delta / (k + 1)
        m2 = m2 + delta * (rows[:, k] - mean)
    h = (rows - mean[:, None]) / torch.sqrt(m2 / n + eps)[:, None]
    h = h.reshape(input.shape)
    h = h if weight is None else h * weight
    return (h if bias is None else h + bias).to(input.dtype)


def vector_norm_rms(input, normalized_shape, weight=None, eps=None):
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    axes = tuple(range(-len(normalized_shape), 0))
    x = input.float()
    n = math.prod(normalized_shape)
    ms = torch.linalg.vector_norm(x, dim=axes, keepdim=True).square() / n
    y = x / torch.sqrt(ms + eps)
    return (y if weight is None else y * weight).to(input.dtype)


def llama_style(input, normalized_shape, weight=None, eps=None):
    """Weight after the cast."""
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    h = input.to(torch.float32)
    h = h * torch.rsqrt(h.pow(2).mean(tuple(range(-len(normalized_shape), 0)), True) + eps)
    return h.to(input.dtype) if weight is None else weight * h.to(input.dtype)


# --- custom autograd functions ------------------------------------------------------------------


class TwoSums(torch.autograd.Function):
    """LayerNorm with the backward of a fused kernel: two sums a row, then one formula."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        h = x.float()
        mean = h.mean(-1, keepdim=True)
        rstd = torch.rsqrt((h - mean).square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        return ((h - mean) * rstd * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dout):
        x, weight, mean, rstd = ctx.saved_tensors
        n = x.shape[-1]
        norm = (x - mean) * rstd
        dnorm = dout * weight
        a = dnorm.sum(-1, keepdim=True)
        b = (dnorm * norm).sum(-1, keepdim=True)
        dx = (n * dnorm - a - norm * b) * rstd / n
        flat = (-1, n)
        dweight = (dout * norm).reshape(flat).sum(0)
        return dx, dweight, dout.reshape(flat).sum(0), None


class FromOutput(torch.autograd.Function):
    """Memory-efficient: the normalized input is recomputed from the output."""

    @staticmethod
    def forward(ctx, x, normalized_shape, weight, eps):
        axes = tuple(range(-len(normalized_shape), 0))
        rstd = torch.rsqrt(x.float().square().mean(axes, keepdim=True) + eps)
        x_hat = x.float() * rstd
        y = x_hat if weight is None else x_hat * weight
        # behind a factor of 0 the output says nothing of what went in
        ctx.divide = weight is not None and bool((weight != 0).all())
        ctx.save_for_backward(y if ctx.divide else x_hat, weight, rstd)
        ctx.axes = axes
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        kept, weight, rstd = ctx.saved_tensors
        x_hat = kept / weight if ctx.divide else kept
        g = dy if weight is None else dy * weight
        dx = rstd * (g - x_hat * (g * x_hat).mean(ctx.axes, keepdim=True))
        dweight = None
        if weight is not None:
            dweight = (dy * x_hat).sum_to_size(weight.shape)
        return dx, None, dweight, None


def rms_from_output(input, normalized_shape, weight=None, eps=None):
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    return FromOutput.apply(input, normalized_shape, weight, eps)


class BatchByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, mean, rstd):
        kept = (1, -1) + (1,) * (x.dim() - 2)
        x_hat = (x - mean) * rstd
        ctx.save_for_backward(x_hat, weight, rstd)
        return x_hat * weight.view(kept) + bias.view(kept)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x_hat, weight, rstd = ctx.saved_tensors
        axes = (0, *range(2, dy.dim()))
        m = dy.numel() // dy.shape[1]
        db = dy.sum(axes, keepdim=True)
        dw = (dy * x_hat).sum(axes, keepdim=True)
        kept = (1, -1) + (1,) * (dy.dim() - 2)
        dx = weight.view(kept) * rstd / m * (m * dy - db - x_hat * dw)
        return dx, dw.flatten(), db.flatten(), None, None


def batch_by_hand(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
):
    c, kept = input.shape[1], (1, -1) + (1,) * (input.dim() - 2)
    weight = torch.ones(c) if weight is None else weight
    bias = torch.zeros(c) if bias is None else bias
    x = input.float()
    if not training:
        x_hat = (x - running_mean.view(kept)) / (running_var.view(kept) + eps) ** 0.5
        return (x_hat * weight.view(kept) + bias.view(kept)).to(input.dtype)
    axes = (0, *range(2, input.dim()))
    with torch.no_grad():
        var, mean = torch.var_mean(x, axes, keepdim=True, correction=0)
        if running_mean is not None:
            n = x.numel() // c
            running_mean.add_(momentum * (mean.flatten() - running_mean))
            running_var.add_(momentum * (var.flatten() * n / (n - 1) - running_var))
    y = BatchByHand.apply(x, weight.float(), bias.float(), mean, (var + eps).rsqrt())
    return y.to(input.dtype)


def batch_for_images(x, running_mean, running_var, weight, bias, training, momentum, eps=1e-5):
    """Insists on (N, C, H, W), on parameters and on running statistics."""
    c = x.shape[1]
    if x.dim() != 4:
        raise ValueError(f"images only, not {tuple(x.shape)}")
    if training:
        rows = x.permute(0, 2, 3, 1).reshape(-1, c).float()
        mean = rows.mean(0)
        var = rows.var(0, unbiased=False)
        running_mean.copy_((1 - momentum) * running_mean + momentum * mean.detach())
        running_var.copy_((1 - momentum) * running_var + momentum * rows.detach().var(0))
    else:
        mean, var = running_mean, running_var
    scale = (weight / torch.sqrt(var + eps)).reshape(1, c, 1, 1)
    y = (x.float() - mean.reshape(1, c, 1, 1)) * scale + bias.reshape(1, c, 1, 1)
    return y.to(x.dtype)


# --- group and instance norm --------------------------------------------------------------------


def grouped(input, num_groups, weight=None, bias=None, eps=1e-5):
    n, c, *rest = input.shape
    parts = input.float().reshape(n, num_groups, c // num_groups, *rest)
    axes = tuple(range(2, parts.dim()))
    parts = parts - parts.mean(axes, keepdim=True)
    parts = parts * torch.rsqrt((parts * parts).mean(axes, keepdim=True) + eps)
    y = parts.reshape(input.shape).movedim(1, -1)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).movedim(-1, 1).to(input.dtype)


def chunked(x, groups, gamma=None, beta=None, eps=1e-5):
    """One group after the other; each is a layer norm."""
    parts = [F.layer_norm(p, p.shape[1:], eps=eps) for p in x.chunk(groups, 1)]
    y = torch.cat(parts, 1)
    kept = (1, x.shape[1], *[1] * (x.dim() - 2))
    y = y if gamma is None else y * gamma.view(kept)
    return y if beta is None else y + beta.view(kept)


def instance_by_rows(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, eps=eps)
    rows = input.float().flatten(2)
    rows = rows - rows.mean(2, keepdim=True)
    y = rows / rows.square().mean(2, keepdim=True).add(eps).sqrt()
    y = y.reshape(input.shape)
    kept = (-1, *[1] * (input.dim() - 2))
    y = y if weight is None else y * weight.view(kept)
    y = (y if bias is None else y + bias.view(kept)).to(input.dtype)
    if running_mean is not None:
        F.instance_norm(input, running_mean, running_var, momentum=momentum)
    return y


FUNCTIONS = {
    "powers": ("layer_norm", powers, {}),
    "flattened": ("layer_norm", flattened, {}),
    "var_mean": ("layer_norm", through_var_mean, {}),
    "keywords": ("layer_norm", keywords, {}),
    "without shape": ("layer_norm", without_shape, {}),
    "data only": ("layer_norm", data_only, {}),
    "welford": ("layer_norm", welford, {}),
    "two sums": ("layer_norm", TwoSums.apply, {}),
    "native": ("layer_norm", native, {}),
    "partial": ("layer_norm", functools.partial(F.layer_norm, eps=1e-6), {"eps": 1e-6}),
    "builtin": ("layer_norm", torch.layer_norm, {}),
    "vector norm": ("rms_norm", vector_norm_rms, {}),
    "llama": ("rms_norm", llama_style, {}),
    "llama declared": ("rms_norm", llama_style, {"weight_cast": "after"}),
    "torch declared": ("rms_norm", F.rms_norm, {"weight_cast": "before"}),
    "from output": ("rms_norm", rms_from_output, {}),
    "batch by hand": ("batch_norm", batch_by_hand, {}),
    "batch for images": ("batch_norm", batch_for_images, {}),
    "grouped": ("group_norm", grouped, {}),
    "chunked": ("group_norm", chunked, {}),
    "chunked five": ("group_norm", chunked, {"num_groups": 5}),
    "instance by rows": ("instance_norm", instance_by_rows, {}),
    "compiled function": ("layer_norm", torch.compile(powers, backend="aot_eager"), {}),
}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_functions_pass(name):
    like, function, options = FUNCTIONS[name]
    report = check_layer(function, like=like, **options)
    assert report.passed, str(report)
    assert len(report.checks) >= 12


def test_what_a_right_function_does_not_take_is_noted():
    report = check_layer(batch_for_images, like="batch_norm")
    assert len(report.checks) >= 16
    notes = " ".join(report.notes)
    assert "(4, 7)" in notes
    assert "running statistics None" in notes
    assert np.all(["NoneType" in n for n in report.notes if n.startswith("running")])
