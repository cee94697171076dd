"""Graders of the exercises on warmup; each returns a sentence that names the mistake."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random


@grader
def check_warmup_factor(answer: Answer) -> Grading:
    """Grade `answer(t, warmup_steps) -> float`, the share of the peak at update t = 1, 2, ..."""
    for t, w in ((1, 4), (3, 4), (4, 4), (9, 4), (6, 7)):
        mistakes = {
            "the first update would have rate zero and be lost: count from 1": min(1, (t - 1) / w),
            "update w should be the first at the peak, not update w - 1": min(1, (t + 1) / w),
            "the peak is reached at update w, not at w + 1": min(1, t / (w + 1)),
            "the rate goes on growing beyond the peak": t / w,
        }
        yield Question((t, w), min(1.0, t / w), mistakes)
    yield Question((1, 0), 1.0, hint="a warmup of 0 steps starts at the peak")


@grader
def check_plateau(answer: Answer) -> Grading:
    """Grade `answer(counts) -> float`, the lowest loss of a model that ignores its input.

    `counts` says how often each token is the right output.
    """
    for counts in ([5, 3, 1, 1], [7, 7, 7], [6, 2, 0]):
        shares = [c / sum(counts) for c in counts if c]
        right = -sum(p * math.log(p) for p in shares)
        alike = math.log(len(counts))
        mistakes = {
            "that guesses all tokens alike; the best guess knows which are frequent": alike,
            "the loss is in nats: the natural logarithm": right / math.log(2),
            "that is the perplexity; the loss is its logarithm": math.exp(right),
            "always naming the most frequent token with its share as confidence is not the loss: "
            "average over all tokens": -math.log(max(shares)),
            "the sign: a loss is not negative": -right,
        }
        if 0 in counts:
            mistakes["0 log 0 is 0: leave out a token that never comes"] = math.nan
        yield Question((counts,), right, mistakes)


@grader
def check_token_variance(answer: Answer) -> Grading:
    """Grade `answer(hidden) -> float`, the share of (N, T, D) that differs between tokens."""

    def share(x: Tensor, dim: int | tuple[int, ...]) -> float:
        return ((x - x.mean(dim, keepdim=True)).square().mean() / x.square().mean()).item()

    for n, t, d in ((3, 5, 4), (2, 4, 7)):
        x = random(n, t, d, seed=0) + 2 * random(n, 1, d, seed=1)
        right, size = share(x, 1), x.square().mean()
        var, of_one_mean = x.var(1, correction=0).mean(), share(x, (0, 1))
        by_sequence = sum(share(one, 0) for one in x) / n
        mistakes = {
            "that varies over the features; the tokens of a sequence are axis 1": share(x, 2),
            "that varies over the sequences; the tokens of a sequence are axis 1": share(x, 0),
            "different sequences may have different means: take one mean per sequence": of_one_mean,
            "divide by the mean square, so that the size of the vectors drops out": var,
            "the divisor is T, not T - 1": x.var(1).mean() / size,
            "divide by the mean square, not by the variance of all entries": (
                var / x.var(correction=0)
            ),
            "that is the share that all tokens have in common": 1 - right,
            "one share of the whole state: average first, then divide": by_sequence,
        }
        yield Question((x,), right, mistakes)
    yield Question((x[:, :1].repeat(1, t, 1),), 0.0, hint="equal tokens: 0")
    yield Question((100 * x,), right, hint="scaling all vectors must not change the share")


@grader
def check_first_adam_step(answer: Answer) -> Grading:
    """Grade `answer(gradient, lr, eps) -> update`, what Adam's first step adds to the weights.

    Source:
        kingma2015adam, Algorithm 1, with its bias correction.
    """
    for g, lr, eps in (
        (random(6, seed=2), 0.1, 1e-3),
        (1e-4 * random(2, 3, seed=3), 0.1, 1e-12),
        (100 * random(6, seed=2), 0.01, 0.1),
    ):
        beta1, beta2 = 0.9, 0.999
        m, v = (1 - beta1) * g, (1 - beta2) * g.square()
        w = torch.zeros_like(g, requires_grad=True)
        w.grad = g.clone()
        torch.optim.Adam([w], lr=lr, eps=eps).step()
        right, by_norm = w.detach(), -lr * g / (g.norm() + eps)
        mistakes = {
            "that is a step of SGD; Adam divides by the root of the second moment": -lr * g,
            "the sign: a step goes against the gradient": -right,
            "the moments start at zero and are corrected for that": -lr * m / (v.sqrt() + eps),
            "the second moment is corrected too": -lr * g / (v.sqrt() + eps),
            "the first moment is corrected too": -lr * m / (g.abs() + eps),
            "eps belongs outside the root": -lr * g / (g.square() + eps).sqrt(),
            "eps is missing: with it the step is a little smaller than lr": -lr * g.sign(),
            "each weight is divided by its own gradient, not by the norm of all": by_norm,
        }
        yield Question((g, lr, eps), right, mistakes)


@grader
def check_stable_rate(answer: Answer) -> Grading:
    """Grade `answer(curvature, beta1) -> float`, the largest stable rate on a parabola.

    The steps are those of gradient descent with an averaged gradient, which is Adam with its
    denominator held at one: `m = beta1 m + (1 - beta1) g`, then `w -= rate m`.
    """
    for curvature, beta in ((4.0, 0.9), (0.5, 0.5), (3.0, 0.0)):
        factor = 2 * (1 + beta) / (1 - beta)
        right, summed = factor / curvature, 2 * (1 + beta) / curvature
        halved = 2 / ((1 - beta) * curvature)
        mistakes = {
            "that is the limit without averaging": 2 / curvature,
            "that is the limit when the gradients are summed up, m = beta1 m + g": summed,
            "twice as much is still stable": right / 2,
            "the limit falls with the curvature": factor * curvature,
            "averaging raises the limit, but by (1 + beta1) / (1 - beta1)": halved,
        }
        yield Question((curvature, beta), right, mistakes)
