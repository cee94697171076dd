"""The graders of the warmup chapter accept right answers and name each mistake."""

import math

import numpy as np


def _plateau(counts):
    total = sum(counts)
    return -sum(c / total * math.log(c / total) for c in counts if c)


def _token_variance(x):
    return ((x - x.mean(1, keepdim=True)) ** 2).mean() / (x**2).mean()


RIGHT = {
    "check_warmup_factor": lambda t, w: min(1.0, t / w) if w else 1.0,
    "check_plateau": _plateau,
    "check_token_variance": _token_variance,
    "check_first_adam_step": lambda g, lr, eps: -lr * g / (g.abs() + eps),
    "check_stable_rate": lambda c, b: 2 * (1 + b) / ((1 - b) * c),
}


def _plateau_by_array(counts):
    p = np.array(counts) / sum(counts)
    p = p[p > 0]
    return -(p * np.log(p)).sum()


def _by_sequence(x):
    return sum(_token_variance(one[None]) for one in x) / len(x)


def _adam_in_full(g, lr, eps):
    m, v = 0.1 * g, 0.001 * g**2
    return -lr * (m / (1 - 0.9)) / ((v / (1 - 0.999)).sqrt() + eps)


OTHER = {
    "check_warmup_factor": lambda t, w: t / w if t < w else 1,
    "check_plateau": _plateau_by_array,
    "check_token_variance": lambda x: x.var(1, correction=0).mean() / x.square().mean(),
    "check_first_adam_step": _adam_in_full,
    "check_stable_rate": lambda c, b: (2 / c) * (1 + b) / (1 - b),
}
WRONG = {
    "check_warmup_factor": {
        "counted from 0": (lambda t, w: min(1.0, (t - 1) / w) if w else 1.0, "count from 1"),
        "no warmup": (lambda t, w: min(1.0, t / w), "ZeroDivisionError"),
        "a step more": (lambda t, w: min(1.0, t / (w + 1)), "the peak is reached at update w"),
        "zero where there is no warmup": (
            lambda t, w: min(1.0, t / w) if w else 0.0,
            "starts at the peak",
        ),
    },
    "check_plateau": {
        "0 log 0": (lambda counts: _plateau(counts) + (math.nan if 0 in counts else 0), "0 log 0"),
        "bits": (lambda counts: _plateau(counts) / math.log(2), "in nats"),
    },
    "check_token_variance": {
        "shares averaged": (_by_sequence, "average first"),
        "as an array": (lambda x: x.var(1, correction=0), "expected one number"),
    },
    "check_first_adam_step": {
        "the sign of the gradient": (lambda g, lr, eps: -lr * g.sign(), "eps is missing"),
        "with the gradient": (lambda g, lr, eps: lr * g / (g.abs() + eps), "against the gradient"),
        "one number": (lambda g, lr, eps: -lr, "expected shape (6,)"),
    },
    "check_stable_rate": {
        "for SGD": (lambda c, b: 2 / c, "without averaging"),
    },
}
