"""Graders of the exercises on many devices; each returns a sentence that names the mistake."""

from __future__ import annotations

import math

import torch

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random
from normlab.book.exercises.shared import merge_moments, momentum_of_parts

REDUCTIONS = ("nothing", "sum", "average")


@grader
def check_merge(answer: Answer) -> Grading:
    """Grade `answer(counts, means, squares) -> (mean, var)`, moments of several sets together.

    Source:
        chan1983algorithms, Eq. 2.1.
    """
    for sizes in ((2, 2), (5, 3, 1), (4, 0, 2), (0, 3)):
        parts = [3 * i + random(n, seed=i) for i, n in enumerate(sizes)]
        counts = torch.tensor([float(n) for n in sizes])
        means = torch.stack([p.sum() / max(1, len(p)) for p in parts])
        squares = torch.stack([(p - m).square().sum() for p, m in zip(parts, means, strict=True)])
        right, mistakes = merge_moments(counts, means, squares / counts.clamp(min=1))
        mistakes |= {
            "that is the sum of squared deviations; divide it by the count": (
                right[0],
                right[1] * sum(sizes),
            ),
            "the squares within each device are missing": (
                right[0],
                right[1] - squares.sum().item() / sum(sizes),
            ),
            "`squares` are about each device's own mean: add what the means lie apart": (
                right[0],
                squares.sum().item() / sum(sizes) - right[0] ** 2,
            ),
            "average the squared distances by the counts; a larger device counts more": (
                right[0],
                (squares.sum() / sum(sizes) + (means - right[0]).square().mean()).item(),
            ),
        }
        if not sizes[0]:
            mistakes["the first device may be empty, too: 0 / 0 is NaN"] = (math.nan, math.nan)
        yield Question((counts, means, squares), right, mistakes)


@grader
def check_sync_gradient(answer: Answer) -> Grading:
    """Grade `answer(dy, x_hat, weight, rstd, sum_dy, sum_dy_x_hat, count) -> dx`, on one device.

    Source:
        ioffe2015batch, Section 3, with means over the samples of all devices.
    """
    for seed, (mine, others) in enumerate(((4, 4), (5, 2))):
        dy, x_hat = random(mine + others, 3, seed=seed), random(mine + others, 3, seed=seed + 9)
        weight, rstd = 1.5 + 0.5 * random(3, seed=seed + 3), 0.5 + random(3, seed=seed + 4).abs()
        sums, count = (dy.sum(0), (dy * x_hat).sum(0)), mine + others
        dy, x_hat = dy[:mine], x_hat[:mine]
        right = (dy - sums[0] / count - x_hat * sums[1] / count) * weight * rstd
        by_own_count = (dy - sums[0] / mine - x_hat * sums[1] / mine) * weight * rstd
        undivided = (dy - sums[0] - x_hat * sums[1]) * weight * rstd
        own = (dy - dy.mean(0) - x_hat * (dy * x_hat).mean(0)) * weight * rstd
        mistakes = {
            "the means are those of this device alone; use the sums over all": own,
            "the sums are over all devices, so divide them by the count of all": by_own_count,
            "the sums have to be divided by the count": undivided,
            "the weight is missing": right / weight,
            "the weight multiplies the sums, too: it stands before the bracket": (
                rstd * (weight * dy - sums[0] / count - x_hat * sums[1] / count)
            ),
            "the factor rstd is missing": right / rstd,
            "the statistics are taken as constants": dy * weight * rstd,
            "the part along x_hat is missing": (dy - sums[0] / count) * weight * rstd,
        }
        yield Question((dy, x_hat, weight, rstd, *sums, count), right, mistakes)


@grader
def check_equivalent_momentum(answer: Answer) -> Grading:
    """Grade `answer(momentum, times) -> float`, what `times` updates have to use."""
    for given in ((0.1, 2), (0.1, 1), (0.3, 3)):
        yield Question(given, *momentum_of_parts(*given))


@grader
def check_numbers_sent(answer: Answer) -> Grading:
    """Grade `answer(channels) -> int`, numbers that a device sends in one training step."""
    for channels in ([64], [64, 128, 256], [3, 3]):
        c, layers = sum(channels), len(channels)
        mistakes = {
            "the count travels, too, once for each layer": 4 * c,
            "that is the forward pass alone": 2 * c + layers,
            "that is the backward pass alone": 2 * c,
            "the count travels forward only; the backward pass knows it": 4 * c + 2 * layers,
            "mean and squared deviations are two numbers for each channel": 3 * c + layers,
        }
        yield Question((channels,), 4 * c + layers, mistakes)


@grader
def check_reduction(answer: Answer) -> Grading:
    """Grade `answer(divided) -> str`, what a norm's weight gradient needs."""
    averaged = "the average would be the gradient of a mean over devices; the loss is one sum"
    own = "each device has the weights of its own features, and nobody else has"
    rights = {
        "features": ("nothing", dict.fromkeys(["sum", "average"], own)),
        "tokens": ("sum", {"average": averaged, "nothing": "each copy saw its own tokens only"}),
        "heads": ("sum", {"average": averaged, "nothing": "each copy saw its own heads only"}),
        "samples": (
            "average",
            {
                "sum": "each device took a mean, so the whole is their mean",
                "nothing": "each copy saw its own samples only",
            },
        ),
    }
    for divided, (right, reasons) in rights.items():
        mistakes = {
            f"for {divided!r} it is not {wrong!r}: {why}": wrong for wrong, why in reasons.items()
        }
        yield Question((divided,), right, mistakes, choices=REDUCTIONS)
