"""Graders of the exercises on numerics; each returns a sentence that names the mistake."""

from __future__ import annotations

from typing import Any

import numpy as np

from normlab.book.exercises.grading import Answer, Grading, Question, grader
from normlab.book.exercises.shared import fold_into_linear, known
from normlab.reference.moments import naive_one_pass, two_pass


@grader(forbids=("float64",))
def check_variance(answer: Answer) -> Grading:
    """Grade `answer(x) -> var`, the biased variance of each row of a float32 array (N, D).

    Source:
        chan1983algorithms, Section 1.
    """
    rng = np.random.default_rng(0)
    one_pass = "that is the mean of squares minus the square of the mean: both are near"
    for mean, rows, columns in ((0.0, 3, 4), (1e4, 5, 200)):
        x = (mean + rng.standard_normal((rows, columns))).astype(np.float32)
        exact = two_pass(x.astype(np.float64), -1).var[:, 0]
        naive = naive_one_pass(x, -1).var[:, 0]
        mistakes: dict[str, Any] = {
            known("bessel"): exact * columns / (columns - 1),
            "one variance for each row, not for each column": x.astype(np.float64).var(0),
            "that is the standard deviation; square it": np.sqrt(exact),
        }
        if mean:
            mistakes[f"{one_pass} {mean * mean:.0e}, where float32 moves in steps of 8"] = naive
            mistakes["a floor at 0 hides the cancellation; it does not undo it"] = naive.clip(0)
        hint = "subtract the mean before you square" if mean else ""
        dtype = np.dtype("float32")
        yield Question((x,), exact, mistakes, hint, tolerance=1e-3, dtype=dtype)


@grader
def check_half_size(answer: Answer) -> Grading:
    """Grade `answer(eps, place) -> std`, the input size whose output has half its proper size."""

    for eps in (3e-6, 1e-4, 0.02):
        mistakes = {
            "at sqrt(eps) the output is 1/sqrt(2): solve s / sqrt(s² + eps) = 1/2": eps**0.5,
            "inside the root eps has the units of a variance: take a root": eps,
            "s² = eps / 3 is a variance: take its root": eps / 3,
            "the equation is s² + eps = 4 s²; you have s² + eps = 2 s": eps / 2,
        }
        yield Question((eps, "inside"), (eps / 3) ** 0.5, mistakes, "place is 'inside'")
        mistakes = {
            "outside the root eps has the units of x; there is no root to take": eps**0.5,
            "that is the value for eps inside the root": (eps / 3) ** 0.5,
            "solve s / (s + eps) = 1/2": eps / 2,
        }
        yield Question((eps, "outside"), eps, mistakes, "place is 'outside'")
        mistakes = {
            "at s = eps the floor just starts to act: the output is still 1": eps,
            "the floor stands under the standard deviation, max(s, eps), not under the variance": (
                eps / 4
            )
            ** 0.5,
        }
        yield Question((eps, "clamp"), eps / 2, mistakes, "place is 'clamp'")


@grader
def check_masked_moments(answer: Answer) -> Grading:
    """Grade `answer(x, mask) -> (mean, var)`, per channel over the real positions.

    The arrays have the shapes (N, C, L) and (N, L); the padding may hold anything, NaN too.
    """
    rng = np.random.default_rng(1)
    filled = (((4, 7), 3, -50.0), ((5, 2, 3), 4, 0.0), ((6, 2), 5, np.nan))

    for lengths, channels, filling in filled:
        mask = np.arange(max(lengths) + 2) < np.array(lengths)[:, None]  # (N, L)
        m = mask[:, None, :]
        x = np.where(m, 3 + rng.standard_normal((len(lengths), channels, mask.shape[1])), filling)
        real = x.transpose(0, 2, 1)[mask]
        mean, var = real.mean(0), real.var(0)
        zeroed, n = np.where(m, x, 0.0), mask.sum()
        more = ((zeroed - mean[:, None]) ** 2).sum((0, 2)) / n
        each = np.stack([x[i][:, row].mean(-1) for i, row in enumerate(mask)]).mean(0)
        diluted = var * n / mask.size
        zeros = zeroed.mean((0, 2)), zeroed.var((0, 2))
        mistakes = {
            "the padding is counted: use the mask": (x.mean((0, 2)), x.var((0, 2))),
            "zeros instead of padding still count; divide by the number of real positions": zeros,
            "the mean is right, but the variance counts (0 - mean)² for each padding": (mean, more),
            "the mean is right, the sum of squares is divided by all positions": (mean, diluted),
            known("bessel"): (mean, var * n / (n - 1)),
            "a long sequence has more weight than a short one: no mean of means": (each, var),
        }
        if np.isnan(filling):
            nothing = np.full(channels, np.nan)
            choose = (
                "the padding holds NaN, and 0 * NaN is NaN: choose by np.where, not by a product"
            )
            mistakes = {choose: (nothing, nothing)}
        yield Question((x, mask), (mean, var), mistakes, tolerance=1e-9)


@grader
def check_porting(answer: Answer) -> Grading:
    """Grade `answer(momentum, epsilon, moving_variance, n) -> (momentum, eps, running_var)`.

    The arguments are those of a Keras batch norm trained on batches of `n` values per channel;
    the results go to torch's, which is to train on in the same way and to evaluate the same.
    """
    for old, eps, var, n in ((0.9, 1e-3, 4.0, 8), (0.75, 1e-2, 0.25, 3)):
        new = 1 - old
        same = "momentum is the weight of the old average there and of the new batch here"
        added = "eps is added when the buffer is used, in both; do not add it to the buffer"
        mistakes = {
            same: (old, eps, var),
            "take eps along: a default of another library is another layer": (new, 1e-5, var),
            "evaluation divides by the root of the buffer as it stands; with Bessel's factor it "
            "would compute something else": (new, eps, var * n / (n - 1)),
            "the buffer holds a variance in both": (new, eps, var**0.5),
            added: (new, eps, var + eps),
        }
        yield Question((old, eps, var, n), (new, eps, var), mistakes, tolerance=1e-9)


@grader
def check_conv_folding(answer: Answer) -> Grading:
    """Grade `answer(kernel, bias, mean, var, weight, shift, eps) -> (kernel, bias)`.

    The batch norm stands behind the convolution; the kernel is (out, in, height, width).

    Source:
        ioffe2015batch, Algorithm 2, step 11.
    """
    rng = np.random.default_rng(2)
    eps = 0.1

    def case(outputs: int, inputs: int, height: int, width: int) -> Question:
        kernel = rng.standard_normal((outputs, inputs, height, width))
        bias, mean, shift = rng.standard_normal((3, outputs))
        var, weight = rng.uniform(0.5, 2.0, outputs), rng.uniform(0.5, 2.0, outputs)
        right, mistakes = fold_into_linear(kernel, bias, (mean, var), weight, shift, eps)
        args = (kernel, bias, mean, var, weight, shift, eps)
        return Question(args, right, mistakes, tolerance=1e-9)

    yield case(3, 3, 3, 3)
    yield case(4, 3, 2, 5)
