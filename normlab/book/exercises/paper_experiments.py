"""Graders of the exercises on the layer norm paper's experiments."""

from __future__ import annotations

import math

from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random
from normlab.book.exercises.shared import known
from normlab.checks.formula import Formula
from normlab.layers import layer_norm


@grader
def check_uses_batch_norm(answer: Answer) -> Grading:
    """Grade `answer(experiment) -> bool`: is batch norm compared in that experiment of the paper?

    The experiments are "order embeddings", "attentive reader", "skip-thoughts", "DRAW",
    "handwriting", "MNIST" and "convnet".

    Source:
        ba2016layer, Section 6.
    """
    known = {
        "order embeddings": (
            False,
            "Table 2 compares order embeddings with and without layer norm",
        ),
        "attentive reader": (
            True,
            "two batch norm curves, taken from another paper, are in Fig. 2",
        ),
        "skip-thoughts": (False, "Table 3 has layer norm, none, and the earlier paper's numbers"),
        "DRAW": (False, "Fig. 4 has two curves, with layer norm and without"),
        "handwriting": (False, "Fig. 5 has two curves, with layer norm and without"),
        "MNIST": (True, "Fig. 6 compares both norms at batch sizes 128 and 4"),
        "convnet": (True, "the remark is that batch norm does better there"),
    }
    for name, (expected, why) in known.items():
        yield Question((name,), expected, hint=f"{name}: {why}")


@grader
def check_lstm_sums(answer: Answer) -> Grading:
    """Grade `answer(x, h, w, u, b) -> sums`, an LSTM's summed inputs as the supplement norms them.

    Plain layer norms (weight 1, bias 0, eps 1e-5) on `w x` and on `u h`, then the bias.

    Shape:
        x (N, I), h (N, H), w (4H, I), u (4H, H), b (4H,); returns (N, 4H).

    Source:
        ba2016layer, supplement, LSTM equations.
    """

    def norm(a: Tensor, eps: float = 1e-5) -> Tensor:
        return layer_norm(a, (a.shape[-1],), eps=eps)

    bessel = Formula("layer_norm", divisor="n-1")
    for n, inputs, hidden, scale in ((3, 5, 2, 1.0), (2, 4, 3, 2e-3)):
        x, h = scale * random(n, inputs, seed=0), scale * random(n, hidden, seed=1)
        w, u = random(4 * hidden, inputs, seed=2), random(4 * hidden, hidden, seed=3)
        b = random(4 * hidden, seed=4)
        from_x, from_h = x @ w.T, h @ u.T
        both, inside = norm(from_x + from_h), norm(from_x + b) + norm(from_h)
        by_gate = [norm(a.unflatten(1, (4, hidden))).flatten(1) for a in (from_x, from_h)]
        mistakes = {
            "the two products are normalized apart, not their sum": both + b,
            "the two products are normalized apart, and the bias comes after": (
                norm(from_x + from_h + b)
            ),
            "here the bias comes after the norms; inside is the authors' code": inside,
            "the bias is missing": norm(from_x) + norm(from_h),
            "the summed inputs are normalized, not x and h": norm(x) @ w.T + norm(h) @ u.T + b,
            "one mean is over all four gates, not one for each gate": sum(by_gate) + b,
            known("bessel"): bessel(from_x) + bessel(from_h) + b,
            "eps is 1e-5": norm(from_x, 0.0) + norm(from_h, 0.0) + b,
        }
        yield Question((x, h, w, u, b), norm(from_x) + norm(from_h) + b, mistakes, tolerance=1e-9)


@grader
def check_sees_length(answer: Answer) -> Grading:
    """Grade `answer(form) -> bool`: does the output change when x becomes twice as long?

    For generic W, b and x, and eps = 0. The forms are "Wx + b", "LN(Wx)", "LN(Wx) + b",
    "LN(Wx + b)" and "W LN(x) + b".
    """
    known = {
        "Wx + b": (True, "nothing is normalized there"),
        "LN(Wx)": (False, "LN(2 Wx) = LN(Wx): layer norm forgets the size of a case"),
        "LN(Wx) + b": (False, "a bias behind the norm cannot bring back what the norm erased"),
        "LN(Wx + b)": (True, "the bias does not grow with x, so the direction of Wx + b changes"),
        "W LN(x) + b": (False, "LN(2 x) = LN(x), before W sees it"),
    }
    for form, (expected, why) in known.items():
        yield Question((form,), expected, hint=f"{form}: {why}")


@grader
def check_probability_ratio(answer: Answer) -> Grading:
    """Grade `answer(before, after) -> factor` for negative bounds in nats per image.

    By what factor does the probability that the bound grants a typical image grow?
    """
    for before, after in ((82.36, 82.09), (90.5, 87.0)):
        gain = before - after
        mistakes = {
            "that is the gain in nats; the bound is on a logarithm": gain,
            "the ratio of two logarithms has no meaning: change the unit of the pixels, "
            "and it changes": before / after,
            "that is the share of the logarithm, whose size depends on the unit": gain / before,
            "nats belong to the natural logarithm; base 2 is for bits": 2**gain,
            "a smaller negative bound is better, so the factor is above 1": math.exp(-gain),
        }
        yield Question((before, after), math.exp(gain), mistakes, tolerance=1e-6)


@grader
def check_loss_in_other_units(answer: Answer) -> Grading:
    """Grade `answer(loss, unit) -> loss` of a model of 2-D displacements in other units.

    The negative log-likelihood per displacement is `loss` for displacements measured in units
    of `unit` pixels. What is it for the same displacements measured in pixels?
    """
    for loss, unit in ((0.5, 3.0), (-1.25, 8.0)):
        shift = math.log(unit)
        smaller = loss - 2 * shift
        mistakes = {
            "a displacement has two coordinates, so the density changes by unit ** 2": loss + shift,
            "a density per pixel is smaller than one per larger unit, so the loss grows": smaller,
            "densities carry units; the loss is not the same": loss,
            "the density is scaled, so its logarithm is shifted": loss * unit,
            "the density is scaled, so its logarithm is shifted, not multiplied": loss * unit**2,
        }
        yield Question((loss, unit), loss + 2 * shift, mistakes, tolerance=1e-9)


@grader
def check_speedup(answer: Answer) -> Grading:
    """Grade `answer(slow, fast) -> ratio` of the epochs that two loss curves need.

    The curves have one loss for each epoch, counted from 1. The level is the best loss of
    `slow`; the ratio is the first epoch at which `slow` has it over the first at which `fast`
    is at or below it. A curve that never gets there saves nothing: 0.0.
    """
    slow = [5.0, 4.0, 3.0, 2.5, 2.0, 2.2, 2.0, 2.1]
    fast = [4.0, 2.1, 2.0, 2.1, 1.4, 1.3]
    mistakes = {
        "that is the inverse": 3 / 5,
        "the level is the best loss of slow, not its last": 8 / 2,
        "epochs count from 1": 4 / 2,
        "slow needs the epochs up to its best loss, not all of its epochs": 8 / 3,
        "at the level is enough: <=, not <": 5 / 5,
        "slow has its best loss twice; the first epoch counts": 7 / 3,
        "the first epoch of fast at or below the level is asked for, not its best": 5 / 6,
    }
    yield Question((slow, fast), 5 / 3, mistakes)
    sentence = "a curve that never gets there saves nothing: 0.0"
    yield Question((slow, [4.0] * 6), 0.0, {sentence: 5 / 6}, sentence)
    yield Question(([3.0, 1.0], [1.0, 2.0]), 2.0)
