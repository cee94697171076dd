"""Graders of the exercises on the norms after 2016; each returns a sentence with the mistake."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random
from normlab.book.exercises.shared import known
from normlab.layers import global_response_norm


@grader
def check_rms_weight(answer: Answer) -> Grading:
    """Grade `answer(g, size)`, the weight of RMS norm that equals ScaleNorm's length g."""
    for g, size in ((10.0, 4), (3.0, 64)):
        root = math.sqrt(size)
        longer = g * root
        mistakes = {
            "RMS norm leaves the length at the root of the size, so divide by it": g,
            "divide, do not multiply: RMS norm makes vectors longer than ScaleNorm's unit": longer,
            "the length of the output is the root of the size, not the size": g / size,
            "g is a length, not its square: the root is over the size alone": (g / size) ** 0.5,
        }
        yield Question((g, size), g / root, mistakes)


@grader
def check_batch_renorm(answer: Answer) -> Grading:
    """Grade `answer(x, batch_mean, batch_std, mean, std, r_max, d_max) -> y`.

    Source:
        ioffe2017batch, Algorithm 1.
    """
    for given in (
        (4.0, 1.0, 3.0, 0.5, 2.0, 3.0, 5.0),
        (2.5, 1.0, 3.0, 0.2, 2.0, 1.25, 0.15),
        (-1.0, 2.0, 0.5, 4.0, 2.5, 3.0, 0.6),
    ):
        x, batch_mean, batch_std, mean, std, r_max, d_max = given
        x_hat = (x - batch_mean) / batch_std
        factor, shift = batch_std / std, (batch_mean - mean) / std
        r = min(max(factor, 1 / r_max), r_max)
        d = min(max(shift, -d_max), d_max)
        mistakes = {
            "that is batch norm; r and d are missing": x_hat,
            "r and d are bounded from below, too, by 1/r_max and -d_max": (
                x_hat * min(factor, r_max) + min(shift, d_max)
            ),
            "that is evaluation; r and d have bounds": (x - mean) / std,
            "r is bounded from below, too, by 1/r_max": x_hat * min(factor, r_max) + d,
            "d is bounded from below, too, by -d_max": x_hat * r + min(shift, d_max),
            "r is the batch's spread over the running one": x_hat / r + d,
            "d is in running deviations, not in those of the batch": (
                x_hat * r + min(max((batch_mean - mean) / batch_std, -d_max), d_max)
            ),
            "d is the batch's mean minus the running one": x_hat * r - d,
            "d is added behind the factor": (x_hat + d) * r,
        }
        yield Question(given, x_hat * r + d, mistakes)


@grader(forbids=("global_response_norm",))
def check_global_response(answer: Answer) -> Grading:
    """Grade `answer(x, weight, bias, eps) -> y` for images (N, C, H, W).

    Source:
        woo2023convnext.
    """
    for shape, eps in (((2, 3, 4, 5), 0.1), ((3, 4, 2, 2), 0.8)):
        x, channels = random(*shape, seed=0), shape[1]
        weight, bias = 1.5 + 0.5 * random(channels, seed=1), random(channels, seed=2)
        w, b = weight[:, None, None], bias[:, None, None]

        def contrast(length: Tensor, mean: Tensor, x: Tensor = x, eps: float = eps) -> Tensor:
            return x * (length / (mean + eps))

        squares = x.square().sum((2, 3), keepdim=True)
        length, of_all = squares.sqrt(), x.square().sum((1, 2, 3), keepdim=True).sqrt()
        mean_length = length.mean(1, keepdim=True)
        ratio = contrast(length, mean_length)
        of_positions = x.square().sum(1, keepdim=True).sqrt()
        without_root = contrast(squares, squares.mean(1, keepdim=True))
        rms = squares.div(math.prod(shape[2:])).sqrt()
        averaged = contrast(rms, rms.mean(1, keepdim=True))
        over_batch = contrast(length, length.mean((0, 1), keepdim=True))
        mistakes = {
            "the input is added at the end": w * ratio + b,
            known("bias_ignored", "global_response_norm"): w * ratio + x,
            known("weight_ignored", "global_response_norm"): ratio + b + x,
            "weight and bias are applied to the sum; the input is added after them": (
                w * (ratio + x) + b
            ),
            "the mean runs over the channels": (
                w * contrast(length, length.mean(0, keepdim=True)) + b + x
            ),
            "the mean runs over the channels of one image, not over the batch": (
                w * over_batch + b + x
            ),
            "a length is the root of the sum of squares": w * without_root + b + x,
            "a length sums over the positions; it does not average": w * averaged + b + x,
            "each channel has a length of its own": w * contrast(of_all, torch.ones(())) + b + x,
            "that is the length of each position: sum over height and width, not over channels": (
                w * contrast(of_positions, of_positions.mean((2, 3), keepdim=True)) + b + x
            ),
            "eps is added to the mean length": w * x * length / mean_length + b + x,
            "the sum of the lengths needs its 1/C": (
                w * contrast(length, length.sum(1, keepdim=True)) + b + x
            ),
        }
        right = global_response_norm(x, weight, bias, eps)
        yield Question((x, weight, bias, eps), right, mistakes)
