"""The graders of the chapter on the norms after 2016 accept right answers and name mistakes."""

import math

import pytest

from normlab.exercises import family as exercises


def _clip(value, low, high):
    return min(max(value, low), high)


def _renorm(x, batch_mean, batch_std, mean, std, r_max, d_max, lowest_r=None, lowest_d=None):
    r = _clip(batch_std / std, 1 / r_max if lowest_r is None else lowest_r, r_max)
    d = _clip((batch_mean - mean) / std, -d_max if lowest_d is None else lowest_d, d_max)
    return (x - batch_mean) / batch_std * r + d


def _response(x, weight, bias, eps, skip=1, over=1, root=0.5, mean=True, inside=True):
    length = x.square().sum((2, 3), keepdim=True) ** root
    all_lengths = length.mean(over, keepdim=True) if mean else length.sum(over, keepdim=True)
    relative = length / (all_lengths + eps * inside)
    return weight[:, None, None] * x * relative + bias[:, None, None] + skip * x


RIGHT = {
    "check_rms_weight": lambda g, size: g / math.sqrt(size),
    "check_batch_renorm": _renorm,
    "check_global_response": _response,
}


def _one_length(x, weight, bias, eps):
    length = x.square().sum((1, 2, 3), keepdim=True).sqrt()
    return weight[:, None, None] * x * length / (1 + eps) + bias[:, None, None] + x


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_rms_weight", lambda g, size: g, "divide by it"),
        ("check_rms_weight", lambda g, size: g * math.sqrt(size), "do not multiply"),
        ("check_rms_weight", lambda g, size: g / size, "not the size"),
        ("check_batch_renorm", lambda x, m, s, *_: (x - m) / s, "that is batch norm"),
        ("check_batch_renorm", lambda x, _, __, m, s, *___: (x - m) / s, "that is evaluation"),
        ("check_batch_renorm", lambda *a: _renorm(*a, lowest_r=0.0), "r is bounded from below"),
        ("check_batch_renorm", lambda *a: _renorm(*a, lowest_d=-99.0), "d is bounded from below"),
        (
            "check_batch_renorm",
            lambda x, bm, bs, m, s, r, d: (
                (x - bm) / bs / _clip(bs / s, 1 / r, r) + _clip((bm - m) / s, -d, d)
            ),
            "spread over the running",
        ),
        (
            "check_batch_renorm",
            lambda x, bm, bs, m, s, r, d: (
                (x - bm) / bs * _clip(bs / s, 1 / r, r) - _clip((bm - m) / s, -d, d)
            ),
            "mean minus the running",
        ),
        (
            "check_batch_renorm",
            lambda x, bm, bs, m, s, r, d: (
                ((x - bm) / bs + _clip((bm - m) / s, -d, d)) * _clip(bs / s, 1 / r, r)
            ),
            "behind the factor",
        ),
        ("check_global_response", lambda *a: _response(*a, skip=0), "added at the end"),
        ("check_global_response", lambda *a: _response(*a, over=0), "over the channels"),
        ("check_global_response", lambda *a: _response(*a, root=1), "root of the sum"),
        ("check_global_response", lambda *a: _response(*a, mean=False), "1/C"),
        ("check_global_response", lambda *a: _response(*a, inside=False), "eps is added"),
        ("check_global_response", _one_length, "length of its own"),
        ("check_global_response", lambda x, *_: x, "wrong value"),
    ],
)
def test_mistakes_are_named(name, answer, says):
    assert says in getattr(exercises, name)(answer)
