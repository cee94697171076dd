"""The graders of the warmup chapter accept right answers and name each mistake."""

import math

import pytest
import torch

from normlab.exercises import warmup as exercises


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


WRONG = [
    ("check_warmup_factor", lambda t, w: min(1.0, (t - 1) / w), "count from 1"),
    ("check_warmup_factor", lambda t, w: min(1.0, (t + 1) / w), "update w should be the first"),
    ("check_warmup_factor", lambda t, w: t / w, "goes on growing"),
    ("check_warmup_factor", lambda t, w: min(1.0, t / w), "ZeroDivisionError"),
    ("check_warmup_factor", lambda t, w: min(1.0, t / w) if w else 0.0, "starts at the peak"),
    (
        "check_transformer_rate",
        lambda t, d, w: d**-0.5 * max(t**-0.5, t * w**-1.5),
        "not the larger",
    ),
    ("check_transformer_rate", lambda t, d, w: min(t**-0.5, t * w**-1.5), "width is missing"),
    ("check_transformer_rate", lambda t, d, w: d**0.5 * min(t**-0.5, t * w**-1.5), "negative"),
    ("check_transformer_rate", lambda t, d, w: d**-0.5 * min(t**-0.5, t * w**-0.5), "-3/2"),
    ("check_transformer_rate", lambda t, d, w: min(t / w, (w / t) ** 0.5), "share of the peak"),
    ("check_plateau", lambda c: math.log(len(c)), "guesses all tokens alike"),
    ("check_plateau", lambda c: _plateau(c) / math.log(2), "natural logarithm"),
    ("check_plateau", lambda c: math.exp(_plateau(c)), "perplexity"),
    ("check_plateau", lambda c: -_plateau(c), "sign"),
    ("check_plateau", lambda c: -math.log(max(c) / sum(c)), "most frequent"),
    ("check_token_variance", lambda x: x.var(2, correction=0).mean() / (x**2).mean(), "axis 1"),
    ("check_token_variance", lambda x: x.var(0, correction=0).mean() / (x**2).mean(), "sequences"),
    (
        "check_token_variance",
        lambda x: x.var((0, 1), correction=0).mean() / (x**2).mean(),
        "one mean per sequence",
    ),
    ("check_token_variance", lambda x: x.var(1, correction=0).mean(), "drops out"),
    ("check_token_variance", lambda x: x.var(1).mean() / (x**2).mean(), "T - 1"),
    ("check_token_variance", lambda x: x.var(1, correction=0).mean() / x.var(), "wrong"),
    ("check_token_variance", lambda x: 1 - _token_variance(x), "in common"),
    ("check_first_adam_step", lambda g, lr, eps: -lr * g, "step of SGD"),
    ("check_first_adam_step", lambda g, lr, eps: lr * g / (g.abs() + eps), "sign"),
    (
        "check_first_adam_step",
        lambda g, lr, eps: -lr * 0.1 * g / (0.001**0.5 * g.abs() + eps),
        "start at zero",
    ),
    ("check_first_adam_step", lambda g, lr, eps: -lr * g / (g**2 + eps).sqrt(), "outside"),
    ("check_first_adam_step", lambda g, lr, eps: -lr * g / (g.norm() + eps), "its own gradient"),
    ("check_first_adam_step", lambda g, lr, eps: -lr * torch.sign(g), "wrong"),
    ("check_stable_rate", lambda c, b: 2 / c, "without averaging"),
    ("check_stable_rate", lambda c, b: 2 * (1 + b) / c, "summed up"),
    ("check_stable_rate", lambda c, b: (1 + b) / ((1 - b) * c), "twice as much"),
    ("check_stable_rate", lambda c, b: 2 * (1 + b) / (1 - b) * c, "falls with"),
]


@pytest.mark.parametrize(("name", "answer", "words"), WRONG)
def test_mistakes_are_named(name, answer, words):
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong: ")
    assert words in verdict
