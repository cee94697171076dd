"""The graders of the warmup chapter accept right answers and name each mistake."""

import math


def _plateau(counts):
    total = sum(counts)
    return -sum(c / total * math.log(c / total) for c in counts if c)


def _token_variance(x):
    return ((x - x.mean(1, keepdim=True)) ** 2).mean() / (x**2).mean()


RIGHT = {
    "check_warmup_factor": lambda t, w: min(1.0, t / w) if w else 1.0,
    "check_transformer_rate": lambda t, d, w: d**-0.5 * min(t**-0.5, t * w**-1.5),
    "check_plateau": _plateau,
    "check_token_variance": _token_variance,
    "check_first_adam_step": lambda g, lr, eps: -lr * g / (g.abs() + eps),
    "check_stable_rate": lambda c, b: 2 * (1 + b) / ((1 - b) * c),
}
