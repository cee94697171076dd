"""The graders of the RMSNorm chapter accept right answers and name each mistake."""

import math

import pytest
import torch

from normlab.exercises import rms_norm as exercises
from normlab.layers import rms_norm


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
    ],
)
def test_mistakes_are_named(name, answer, says):
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong: ")
    assert says in verdict
