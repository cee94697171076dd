"""The graders of the blank page accept right answers and name each mistake."""

import re

import pytest
import torch
from torch.nn import functional

from normlab.exercises import interview as exercises


def rows(v):
    return v.mean(-1, keepdim=True)


def forward(x, weight, bias, eps):
    centered = x - rows(x)
    rstd = (rows(centered**2) + eps).rsqrt()
    x_hat = centered * rstd
    return x_hat * weight + bias, (x_hat, rstd, weight)


def backward(dy, cache):
    x_hat, rstd, weight = cache
    g = dy * weight
    dx = rstd * (g - rows(g) - x_hat * rows(g * x_hat))
    return dx, (dy * x_hat).sum(0), dy.sum(0)


def without_mean(dy, cache):
    x_hat, rstd, weight = cache
    g = dy * weight
    return rstd * (g - x_hat * rows(g * x_hat)), (dy * x_hat).sum(0), dy.sum(0)


def averaged(dy, cache):
    dx, dweight, dbias = backward(dy, cache)
    return dx, dweight / dy.shape[0], dbias


def layer(x, weight, bias, eps):
    return forward(x, weight, bias, eps)[0]


def batch(x, mean, var, weight, bias, training, momentum, eps, bessel=True, new=None):
    new = momentum if new is None else new(momentum)
    if training:
        m = x.mean(0)
        v = (x - m).square().mean(0)
        with torch.no_grad():
            n = x.shape[0]
            mean.lerp_(m.to(mean.dtype), new)
            var.lerp_((v * n / (n - 1) if bessel else v).to(var.dtype), new)
    else:
        m, v = mean, var
    return (x - m) * (v + eps).rsqrt() * weight + bias


def rms(input, normalized_shape, weight=None, eps=None):
    x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    dims = tuple(range(-len(normalized_shape), 0))
    y = x * (x.square().mean(dims, keepdim=True) + eps).rsqrt()
    return (y if weight is None else y * weight).to(input.dtype)


def deep(x, branch, norm, layers):
    return norm((2 * layers) ** 0.25 * x + branch(x))


RIGHT = {
    "check_layer_norm": (layer,),
    "check_layer_norm_pair": (forward, backward),
    "check_batch_norm": (batch,),
    "check_rms_norm": (rms,),
    "check_deep_norm": (deep,),
}


def test_a_missing_backward_is_no_answer():
    assert exercises.check_layer_norm_pair(forward, lambda *_: None) == "not answered yet"


WRONG = [
    (
        "check_layer_norm",
        (lambda x, w, b, eps: (x - rows(x)) / (x.var(-1, keepdim=True) + eps).sqrt() * w + b,),
        "n-1",
    ),
    (
        "check_layer_norm",
        (
            lambda x, w, b, eps: (
                (x - rows(x)) / (x.var(-1, correction=0, keepdim=True).sqrt() + eps) * w + b
            ),
        ),
        "outside",
    ),
    (
        "check_layer_norm",
        (
            lambda x, w, b, eps: (
                (x - rows(x)) * (rows(x**2) - rows(x) ** 2 + eps).clamp(eps).rsqrt() * w + b
            ),
        ),
        "mean(x",
    ),
    ("check_layer_norm_pair", (forward, without_mean), "mean"),
    ("check_layer_norm_pair", (forward, averaged), "weight"),
    ("check_batch_norm", (lambda *a: batch(*a, bessel=False),), "Bessel"),
    ("check_batch_norm", (lambda *a: batch(*a, new=lambda m: 1 - m),), "momentum"),
    ("check_batch_norm", (lambda *a: batch(*a[:5], True, *a[6:]),), "eval"),
    (
        "check_rms_norm",
        (lambda x, n, w=None, eps=None: functional.layer_norm(x, n, w),),
        "is LayerNorm",
    ),
    ("check_rms_norm", (lambda x, n, w=None, eps=None: rms(x, n, w, eps or 1e-8),), "eps is 1e-08"),
]


def rms_by_rows(input, normalized_shape, weight=None, eps=None):
    y = rms(input, normalized_shape, None, eps)
    return y if weight is None else y * weight[:, None]


SLIPS = {
    "the weight on the rows": (
        "check_layer_norm",
        lambda x, weight, b, eps: forward(x, weight**0, 0 * b, eps)[0] * weight[:, None] + b,
    ),
    "the bias on the rows": (
        "check_layer_norm",
        lambda x, w, bias, eps: forward(x, w, 0 * bias, eps)[0] + bias[:, None],
    ),
    "the weight of batch norm on the rows": (
        "check_batch_norm",
        lambda x, mean, var, weight, bias, *rest: (
            batch(x, mean, var, weight**0, 0 * bias, *rest) * weight[:, None] + bias
        ),
    ),
    "the weight of RMS norm on the rows": ("check_rms_norm", rms_by_rows),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_that_raises_is_told_with_the_weight_or_the_bias(slip):
    name, answer = SLIPS[slip]
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong: ")
    word = "bias" if "bias" in slip else "weight"
    assert re.search(rf"(given a|,) {word}\b", verdict)
    assert "RuntimeError" in verdict


@pytest.mark.parametrize(("name", "answer", "says"), WRONG)
def test_mistakes_get_their_sentence(name, answer, says):
    verdict = getattr(exercises, name)(*answer)
    assert verdict.startswith("wrong: ")
    assert says in verdict
