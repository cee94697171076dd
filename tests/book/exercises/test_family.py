"""The answers that the test of every check feeds to those of the norms after 2016."""

import math

import numpy as np
import torch

from normlab import layers


def _clip(value, low, high):
    return min(max(value, low), high)


def renorm(x, batch_mean, batch_std, mean, std, r_max, d_max, lowest_r=None, lowest_d=None):
    r = _clip(batch_std / std, 1 / r_max if lowest_r is None else lowest_r, r_max)
    d = _clip((batch_mean - mean) / std, -d_max if lowest_d is None else lowest_d, d_max)
    return (x - batch_mean) / batch_std * r + d


def renorm_in_numpy(x, batch_mean, batch_std, mean, std, r_max, d_max):
    r = np.clip(batch_std / std, 1 / r_max, r_max)
    d = np.clip((batch_mean - mean) / std, -d_max, d_max)
    return np.float64((x - batch_mean) / batch_std) * r + d


def response(x, weight, bias, eps, *, skip=1, axes=(2, 3), over=1, root=0.5, mean=True):
    length = x.square().sum(axes, keepdim=True) ** root
    of_all = length.mean(over, keepdim=True) if mean else length.sum(over, keepdim=True)
    relative = length / (of_all + eps)
    return weight[:, None, None] * x * relative + bias[:, None, None] + skip * x


def response_in_numpy(x, weight, bias, eps):
    x, weight, bias = map(np.asarray, (x, weight, bias))
    length = np.linalg.norm(x.reshape(*x.shape[:2], -1), axis=-1)
    relative = length / (length.mean(-1, keepdims=True) + eps)
    return x * (1 + (weight * relative)[..., None, None]) + bias.reshape(-1, 1, 1)


RIGHT = {
    "check_rms_weight": lambda g, size: g / math.sqrt(size),
    "check_batch_renorm": renorm,
    "check_global_response": response,
}
OTHER = {
    "check_rms_weight": lambda g, size: torch.tensor(g) * size**-0.5,
    "check_batch_renorm": renorm_in_numpy,
    "check_global_response": response_in_numpy,
}
WRONG = {
    "check_rms_weight": {
        "g": (lambda g, size: g, "so divide by it"),
        "times": (lambda g, size: g * math.sqrt(size), "divide, do not multiply"),
        "by the size": (lambda g, size: g / size, "the root of the size, not the size"),
        "a vector": (lambda g, size: torch.full((size,), g), "expected one number"),
        "the root of all": (lambda g, size: math.sqrt(g / size), "g is a length"),
    },
    "check_batch_renorm": {
        "batch norm": (lambda x, bm, bs, *rest: (x - bm) / bs, "that is batch norm"),
        "evaluation": (lambda x, bm, bs, m, s, *_: (x - m) / s, "r and d have bounds"),
        "r unbounded below": (lambda *a: renorm(*a, lowest_r=0.0), "r is bounded from below"),
        "d unbounded below": (lambda *a: renorm(*a, lowest_d=-99.0), "d is bounded from below"),
        "both unbounded below": (
            lambda *a: renorm(*a, lowest_r=0.0, lowest_d=-99.0),
            "r and d are bounded from below",
        ),
        "d over the batch's": (
            lambda x, bm, bs, m, s, r, d: (
                (x - bm) / bs * _clip(bs / s, 1 / r, r) + _clip((bm - m) / bs, -d, d)
            ),
            "d is in running deviations",
        ),
        "r upside down": (
            lambda x, bm, bs, m, s, r, d: (
                (x - bm) / bs / _clip(bs / s, 1 / r, r) + _clip((bm - m) / s, -d, d)
            ),
            "r is the batch's spread over",
        ),
    },
    "check_global_response": {
        "a call that does it all": (layers.global_response_norm, "it calls global_response_norm"),
        "no skip": (lambda *a: response(*a, skip=0), "the input is added at the end"),
        "no bias": (lambda x, w, b, eps: response(x, w, 0 * b, eps), "the bias is not added"),
        "no weight": (lambda x, w, b, eps: response(x, 0 * w + 1, b, eps), "weight is not applied"),
        "lengths of positions": (
            lambda *a: response(*a, axes=1, over=(2, 3)),
            "the length of each position",
        ),
        "mean over samples": (lambda *a: response(*a, over=0), "the mean runs over the channels"),
        "no root": (lambda *a: response(*a, root=1.0), "the root of the sum of squares"),
        "root mean square": (
            lambda x, w, b, eps: response(x, w, b, eps * math.prod(x.shape[2:]) ** 0.5),
            "it does not average",
        ),
        "mean over the batch": (
            lambda *a: response(*a, over=(0, 1)),
            "the mean runs over the channels of one image",
        ),
        "no eps": (lambda x, w, b, eps: response(x, w, b, 0.0), "eps is added to the mean"),
        "a sum": (lambda *a: response(*a, mean=False), "the sum of the lengths needs its 1/C"),
    },
}
