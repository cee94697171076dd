"""The graders of the layer norm chapter accept right answers and name each mistake."""

import math

import pytest
import torch

from normlab.exercises import layer_norm as exercises
from normlab.layers import layer_norm


def _mean(v):
    return v.mean(-1, keepdim=True)


def _gradient(dy, x, weight, eps):
    centered = x - _mean(x)
    rstd = (_mean(centered**2) + eps).rsqrt()
    x_hat, g = centered * rstd, dy * weight
    return rstd * (g - _mean(g) - x_hat * _mean(g * x_hat))


RIGHT = {
    "check_count_means": lambda shape, n: math.prod(shape[: len(shape) - len(n)]),
    "check_layer_norm": lambda x, w, b, eps: layer_norm(x, x.shape[-1:], w, b, eps),
    "check_input_gradient": _gradient,
    "check_jacobian_rank": lambda features, eps: features - 1 - (eps == 0),
    "check_centering_weights": lambda w: w - w.mean(0),
    "check_telltale_row": lambda: torch.linspace(-1e-3, 1e-3, 64),
}


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_telltale_row", lambda: torch.linspace(-1, 1, 64), "both versions agree"),
        ("check_telltale_row", lambda: torch.linspace(-1e-3, 1e-3, 64) + 1, "mean is 0"),
        ("check_telltale_row", lambda: torch.zeros(3, 3), "expected one row"),
    ],
)
def test_mistakes_are_named(name, answer, says):
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong: ")
    assert says in verdict


def test_exceptions_become_sentences():
    assert "ZeroDivisionError" in exercises.check_telltale_row(lambda: 1 / 0)
