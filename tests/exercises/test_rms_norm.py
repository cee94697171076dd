"""The graders of the RMSNorm chapter accept right answers and name each mistake."""

import math

import pytest
import torch

from normlab.exercises import rms_norm as exercises
from normlab.layers import layer_norm, rms_norm


def _mean(v):
    return v.mean(-1, keepdim=True)


def _gradient(dy, x, weight, eps):
    rrms = (_mean(x**2) + eps).rsqrt()
    x_hat, g = x * rrms, dy * weight
    return rrms * (g - x_hat * _mean(g * x_hat))


RIGHT = {
    "check_rms_norm": lambda x, w, eps: rms_norm(x, x.shape[-1:], w, eps),
    "check_rms_gradient": _gradient,
    "check_jacobian_rank": lambda features, eps: features - (eps == 0),
    "check_half_precision": lambda x, w, eps: (
        x.float() * (_mean(x.float() ** 2) + eps).rsqrt() * w.float()
    ).half(),
    "check_partial_size": lambda features, p: math.ceil(p * features),
    "check_fold_into_linear": lambda a, c, w, b: (a * w, c + a @ b),
}


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        (
            "check_rms_norm",
            lambda x, w, eps: layer_norm(x, x.shape[-1:], w, eps=eps),
            "that is LayerNorm",
        ),
        (
            "check_rms_norm",
            lambda x, w, eps: w * x / (x.var(-1, correction=0, keepdim=True) + eps).sqrt(),
            "mean of squares, not variance",
        ),
        ("check_rms_norm", lambda x, w, eps: w * x / (_mean(x**2).sqrt() + eps), "inside the root"),
        (
            "check_rms_norm",
            lambda x, w, eps: w * x / ((x**2).sum(-1, keepdim=True) + eps).sqrt(),
            "needs its 1/H",
        ),
        ("check_rms_norm", lambda x, w, eps: w * x / (_mean(x**2) + eps), "not by its root"),
        ("check_rms_norm", lambda x, w, eps: x / (_mean(x**2) + eps).sqrt(), "weight is missing"),
        ("check_rms_norm", lambda x, w, eps: w * x / (_mean(x**2) + eps).rsqrt(), "reciprocal"),
        (
            "check_rms_norm",
            lambda x, w, eps: w * x / ((x**2).mean(0) + eps).sqrt(),
            "not for each feature",
        ),
        ("check_rms_norm", lambda x, w, eps: torch.zeros_like(x), "keepdim=True"),
        (
            "check_rms_gradient",
            lambda dy, x, w, eps: (
                _gradient(dy, x, w, eps) - (_mean(x**2) + eps).rsqrt() * _mean(dy * w)
            ),
            "no mean is subtracted",
        ),
        (
            "check_rms_gradient",
            lambda dy, x, w, eps: dy * w * (_mean(x**2) + eps).rsqrt(),
            "as a constant",
        ),
        (
            "check_rms_gradient",
            lambda dy, x, w, eps: w * _gradient(dy, x, torch.ones_like(w), eps),
            "the weight acts before the projection",
        ),
        ("check_jacobian_rank", lambda features, eps: features - 2, "that is LayerNorm's"),
        ("check_jacobian_rank", lambda features, eps: features - 1, "with eps > 0"),
        ("check_jacobian_rank", lambda features, eps: features, "one direction is lost"),
        (
            "check_half_precision",
            lambda x, w, eps: x * (_mean(x**2) + eps).rsqrt() * w,
            "the output is 0",
        ),
        (
            "check_half_precision",
            lambda x, w, eps: (
                x.clamp(-100, 100) / (_mean(x.clamp(-100, 100) ** 2) + torch.tensor(eps).half())
            ).half(),
            "off by",
        ),
        (
            "check_half_precision",
            lambda x, w, eps: (x.float() * (_mean(x.float() ** 2) + eps).rsqrt()).half() * w,
            "rounded more than once",
        ),
        (
            "check_half_precision",
            lambda x, w, eps: rms_norm(x.float(), x.shape[-1:], w.float(), eps),
            "float32 comes out",
        ),
        (
            "check_half_precision",
            lambda x, w, eps: (
                (x / 16) / _mean((x / 16) ** 2).sqrt() * w if x.abs().max() > 1 else x / 0
            ),
            "not finite",
        ),
        ("check_half_precision", lambda x, w, eps: 3, "expected a tensor"),
        ("check_partial_size", lambda features, p: int(p * features), "rounds up"),
        ("check_partial_size", lambda n, p: math.ceil(p * n) if n > 10 else 0, "nothing to take"),
        ("check_fold_into_linear", lambda a, c, w, b: (a * w, c), "passes through the matrix"),
        (
            "check_fold_into_linear",
            lambda a, c, w, b: (a * w, c + (a * w) @ b),
            "does not meet the weight",
        ),
        (
            "check_fold_into_linear",
            lambda a, c, w, b: (
                (a * w if a.shape[0] != a.shape[1] else w[:, None] * a),
                c + a @ b,
            ),
            "not the rows",
        ),
    ],
)
def test_mistakes_are_named(name, answer, says):
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong: ")
    assert says in verdict
