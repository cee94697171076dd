"""The answers that the test of every check feeds to those of the layer norm chapter."""

import math

import numpy as np
import torch
from torch.nn import functional

from normlab.book.exercises import layer_norm as exercises


def mean(v):
    return v.mean(-1, keepdim=True)


def layer(x, weight, bias, eps, *, correction=0):
    centered = x - mean(x)
    n = x.shape[-1]
    var = mean(centered**2) * n / (n - correction)
    return weight * centered / (var + eps).sqrt() + bias


def layer_in_numpy(x, weight, bias, eps):
    x, weight, bias = (np.asarray(v, dtype=np.float64) for v in (x, weight, bias))
    x_hat = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return x_hat * weight + bias


def one_pass(x, weight, bias, eps):
    return (x - mean(x)) * (mean(x * x) - mean(x) ** 2 + eps).rsqrt() * weight + bias


def with_std(x, weight, bias, eps, *, correction=0):
    std = x.std(-1, correction=correction, keepdim=True)
    return weight * (x - mean(x)) / (std + eps) + bias


def clamped(x, weight, bias, eps):
    std = mean((x - mean(x)) ** 2).sqrt().clamp_min(eps**0.5)
    return weight * (x - mean(x)) / std + bias


def gradient(dy, x, weight, eps):
    centered = x - mean(x)
    rstd = (mean(centered**2) + eps).rsqrt()
    x_hat, g = centered * rstd, dy * weight
    return rstd * (g - mean(g) - x_hat * mean(g * x_hat))


def gradient_by_jacobian(dy, x, weight, eps):
    n = x.shape[-1]
    center = torch.eye(n) - torch.ones(n, n) / n
    centered = x @ center.double()
    var = (centered**2).sum(-1, keepdim=True) / n + eps
    g = (dy * weight) @ center.double()
    return g / var**0.5 - centered * (g * centered).sum(-1, keepdim=True) / n / var**1.5


def gradient_by_autograd(dy, x, weight, eps):
    leaf = x.clone().requires_grad_()
    layer(leaf, weight, 0, eps).backward(dy)
    return leaf.grad


def gradient_with(change):
    def wrong(dy, x, weight, eps):
        centered = x - mean(x)
        rstd = (mean(centered**2) + eps).rsqrt()
        return change(dy, weight, rstd, centered * rstd)

    return wrong


RIGHT = {
    "check_count_means": lambda shape, n: math.prod(shape[: len(shape) - len(n)]),
    "check_layer_norm": layer,
    "check_input_gradient": gradient,
    "check_jacobian_rank": lambda features, eps: features - 1 - (eps == 0),
    "check_centering_weights": lambda w: w - w.mean(0),
    "check_telltale_row": lambda: torch.linspace(-1e-3, 1e-3, 64),
}
OTHER = {
    "check_count_means": lambda shape, n: np.prod(shape) / np.prod(n),
    "check_layer_norm": layer_in_numpy,
    "check_input_gradient": gradient_by_jacobian,
    "check_jacobian_rank": lambda features, eps: np.int64(features - (1 if eps else 2)),
    "check_centering_weights": lambda w: (torch.eye(len(w)) - 1 / len(w)).double() @ w,
    "check_telltale_row": lambda: np.sin(np.arange(100) * np.pi / 5) * 1e-3,
}
ANY_EPS = {"check_jacobian_rank": "the rank depends only on whether eps is 0"}
WRONG = {
    "check_count_means": {
        "one a sequence": (lambda shape, n: shape[0], "not each sequence"),
        "one a feature": (lambda shape, n: shape[-1], "what a batch norm takes"),
        "the entries": (lambda shape, n: math.prod(shape), "not the means"),
        "of the last axis always": (
            lambda shape, n: math.prod(shape[:-1]),
            "normalized_shape has two axes here",
        ),
        "a shape": (lambda shape, n: shape[: len(shape) - len(n)], "expected one number"),
    },
    "check_layer_norm": {
        "a call that does it all": (
            lambda x, w, b, eps: functional.layer_norm(x, x.shape[-1:], w, b, eps),
            "it calls layer_norm",
        ),
        "one pass": (one_pass, "rows far from zero"),
        "x.var()": (lambda x, w, b, eps: layer(x, w, b, eps, correction=1), "use correction=0"),
        "eps outside": (with_std, "This is eps outside the root"),
        "the annotated Transformer": (
            lambda x, w, b, eps: with_std(x, w, b, eps, correction=1),
            "n-1, expected n; eps is added to the root",
        ),
        "a clamp": (clamped, "This is eps as a clamp"),
        "a clamp of the deviation": (
            lambda x, w, b, eps: clamped(x, w, b, eps**2),
            "a lower bound of the root, in units of x",
        ),
        "no eps": (lambda x, w, b, eps: layer(x, w, b, 0.0), "eps is missing"),
        "1 + weight": (lambda x, w, b, eps: layer(x, 1 + w, b, eps), "the factor is 1 + weight"),
        "no bias": (lambda x, w, b, eps: layer(x, w, 0, eps), "the bias is not added"),
        "no keepdim": (
            lambda x, w, b, eps: (x - x.mean(-1)) / (x.var(-1, correction=0) + eps).sqrt() * w + b,
            "without keepdim=True",
        ),
        "RMS norm": (
            lambda x, w, b, eps: x * (mean(x**2) + eps).rsqrt() * w + b,
            "subtract the mean first",
        ),
        "batch norm": (
            lambda x, w, b, eps: (x - x.mean(0)) / (x.var(0, correction=0) + eps).sqrt() * w + b,
            "the statistics are taken over axes (0,)",
        ),
    },
    "check_input_gradient": {
        "no eps": (lambda dy, x, w, eps: gradient(dy, x, w, 0.0), "eps belongs into rstd, too"),
        "autograd": (gradient_by_autograd, "asks for the gradient by hand"),
        "constants": (gradient_with(lambda dy, w, r, h: r * dy * w), "cut from the graph"),
        "no weight": (
            lambda dy, x, w, eps: gradient(dy, x, 1, eps),
            "the weight is missing in the gradient",
        ),
        "a late weight": (
            lambda dy, x, w, eps: w * gradient(dy, x, 1, eps),
            "Multiply dy by the weight first",
        ),
        "sums": (
            gradient_with(
                lambda dy, w, r, h: (
                    r * (dy * w - (dy * w).sum(-1, True) - h * (dy * w * h).sum(-1, True))
                )
            ),
            "the sums need their 1/H",
        ),
        "the other sign": (lambda *a: -gradient(*a), "its sign is reversed"),
    },
    "check_jacobian_rank": {
        "one direction": (lambda features, eps: features - 1, "two directions are lost"),
        "full": (lambda features, eps: features, "so it is not full"),
        "eps ignored": (lambda features, eps: features - 2, "stretching the row does change"),
        "two features": (
            lambda features, eps: 1 if features == 2 else features - 1 - (eps == 0),
            "so nothing is left",
        ),
    },
    "check_centering_weights": {
        "the other axis": (lambda w: w - w.mean(1, keepdim=True), "mean over the rows of w"),
        "one number": (lambda w: w - w.mean(), "each input has its own mean"),
        "the sum": (lambda w: w - w.sum(0), "not their sum"),
        "nothing": (lambda w: w.clone(), "nothing has changed yet"),
        "the means": (lambda w: w.mean(0), "expected shape (4, 6), got shape (6,)"),
    },
    "check_telltale_row": {
        "ordinary": (lambda: torch.linspace(-1, 1, 64), "both versions agree"),
        "few features": (lambda: [-1.5e-3] * 3 + [4.5e-3], "H - 1 instead of H shows here"),
        "a mean": (lambda: torch.linspace(-1e-3, 1e-3, 64) + 1, "mean is 0"),
        "two rows": (lambda: torch.zeros(3, 3), "expected one row"),
        "infinite": (lambda: torch.full((5,), torch.inf), "expected one row of finite numbers"),
        "raising": (lambda: 1 / 0, "ZeroDivisionError"),
    },
}


def test_float32_rows_far_from_zero_are_asked_with_room_for_their_rounding():
    seen = []

    def watched(x, *args):
        seen.append(x)
        return layer(x, *args)

    assert exercises.check_layer_norm(watched) == "right"
    far = [x for x in seen if x.dtype == torch.float32]
    assert [float(x.mean()) > 100 * float(x.std()) for x in far] == [True]
