"""Graders of the exercises on batch norm against layer norm; each names the mistake."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.exercises.grading import Answer, Grading, Question, grader, random

_EPS = 1e-5


def _standardize(x: Tensor, *dims: int) -> Tensor:
    centered = x - x.mean(dims, keepdim=True)
    return centered / (centered.square().mean(dims, keepdim=True) + _EPS).sqrt()


@grader
def check_batch_norm_by_layer_norm(answer: Answer) -> Grading:
    """Grade `answer(x, weight, bias)`: batch norm of a matrix, made with a layer norm."""
    for samples, features, seed in ((4, 4, 0), (6, 3, 2)):
        x = 1.5 + random(samples, features, seed=seed)
        weight, bias = 1.5 + random(2, features, seed=seed + 1)
        columns, rows = _standardize(x, 0), _standardize(x, 1)
        mistakes = {
            "that is layer norm of x; the means are still those of the rows": rows * weight + bias,
            "weight and bias are missing": columns,
            "the result is still transposed": (columns * weight + bias).T,
        }
        if samples == features:
            along = (columns.T * weight + bias).T
            mistakes["weight and bias were applied along the samples: transpose back first"] = along
        yield Question((x, weight, bias), columns * weight + bias, mistakes)


@grader
def check_token_batch_norm(answer: Answer) -> Grading:
    """Grade `answer(x)`: batch norm of each feature over all tokens of (N, T, D), no weight."""
    for seed, shape in enumerate(((4, 5, 5), (3, 7, 4))):
        x = (1.5 + random(*shape, seed=seed)) * torch.linspace(0.5, 2.0, shape[1])[:, None].double()
        mistakes = {
            "each token has its own mean there, which is layer norm": _standardize(x, 2),
            "each position has its own mean there: that is how BatchNorm1d reads (N, T, D)": (
                _standardize(x, 0, 2)
            ),
            "each sequence has its own means there, which is instance norm": _standardize(x, 1),
            "each position of each feature has its own mean there": _standardize(x, 0),
            "one mean for the whole tensor; each feature needs its own": _standardize(x, 0, 1, 2),
        }
        yield Question((x,), _standardize(x, 0, 1), mistakes)


@grader
def check_stored_numbers(answer: Answer) -> Grading:
    """Grade `answer(norm, features)`: how many learned and how many running numbers it keeps.

    `norm` is "batch_norm", "layer_norm" or "rms_norm"; the answer is a tuple of two counts, with
    torch's defaults and without the count of batches.
    """
    for d in (8, 768):
        mistakes = {
            "the running mean and variance are not learned, but they are kept": (2 * d, 0),
            "the running moments are buffers, not learned": (4 * d, 0),
            "a weight and a bias for each feature, not one of each": (2, 2 * d),
        }
        yield Question(("batch_norm", d), (2 * d, 2 * d), mistakes)
        mistakes = {
            "weight and bias are vectors, one entry for each feature": (2, 0),
            "layer norm keeps no running moments": (2 * d, 2 * d),
        }
        yield Question(("layer_norm", d), (2 * d, 0), mistakes)
        yield Question(("rms_norm", d), (d, 0), {"RMS norm has a weight and no bias": (2 * d, 0)})
