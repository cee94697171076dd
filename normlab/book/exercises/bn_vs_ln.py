"""Graders of the exercises on batch norm against layer norm; each names the mistake."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random, uneven
from normlab.book.exercises.shared import known, wrong_outputs
from normlab.checks.formula import Formula

_LAYER, _BATCH = Formula("layer_norm"), Formula("batch_norm")


@grader(forbids=("batch_norm", "instance_norm", "group_norm"))
def check_batch_norm_by_layer_norm(answer: Answer) -> Grading:
    """Grade `answer(x, weight, bias)`: batch norm of a matrix, made with a layer norm."""
    for samples, features, seed in ((4, 4, 0), (6, 3, 2)):
        x = 1.5 + random(samples, features, seed=seed)
        weight, bias = 1.5 + random(2, features, seed=seed + 1)
        columns = _BATCH(x)
        mistakes = {
            "that is layer norm of x; the means are still those of the rows": (
                _LAYER(x, weight, bias)
            ),
            known("affine_ignored", "batch_norm"): columns,
            known("bias_ignored", "batch_norm"): columns * weight,
            known("bias_first", "batch_norm"): (columns + bias) * weight,
            "the result is still transposed": (columns * weight + bias).T,
        }
        if samples == features:
            along = (columns.T * weight + bias).T
            mistakes["weight and bias were applied along the samples: transpose back first"] = along
        yield Question((x, weight, bias), columns * weight + bias, mistakes)
    if _LAYER.like not in answer.called:
        yield "it is right, but it calls no layer norm: make it by a call of layers.layer_norm"


@grader
def check_token_batch_norm(answer: Answer) -> Grading:
    """Grade `answer(x)`: batch norm of each feature over all tokens of (N, T, D), no weight."""
    for seed, (shape, size) in enumerate((((4, 5, 5), 1.0), ((3, 7, 4), 3e-3))):
        by_position = _along_positions(shape[1])
        x = size * uneven(1.5 + random(*shape, seed=seed), 2, 1e-3) * by_position
        rows = x.flatten(0, 1)

        def over(*axes: int, x: Tensor = x) -> Tensor:
            return _BATCH.replace(dims=axes)(x).flatten(0, 1)

        mistakes = {
            "each token has its own mean there, which is layer norm": over(2),
            "each position has its own mean there: that is how BatchNorm1d reads (N, T, D)": (
                over(0, 2)
            ),
            "each sequence has its own means there, which is instance norm": over(1),
            "each position of each feature has its own mean there": over(0),
            "one mean for the whole tensor; each feature needs its own": over(0, 1, 2),
        }
        known_wrong = wrong_outputs(_BATCH, rows, first=mistakes)
        wrong = {sentence: y.view_as(x) for sentence, y in known_wrong.items()}
        yield Question((x,), _BATCH(rows).view_as(x), wrong)


def _along_positions(count: int) -> Tensor:
    """Factors that make positions differ, (T, 1)."""
    return torch.linspace(0.5, 2.0, count, dtype=torch.float64)[:, None]


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
            "without the count of batches, says the text": (2 * d, 2 * d + 1),
            "each of the four is a vector with an entry for each feature": (2, 2),
        }
        yield Question(("batch_norm", d), (2 * d, 2 * d), mistakes)
        mistakes = {
            "weight and bias are vectors, one entry for each feature": (2, 0),
            "layer norm keeps no running moments": (2 * d, 2 * d),
        }
        yield Question(("layer_norm", d), (2 * d, 0), mistakes)
        yield Question(("rms_norm", d), (d, 0), {"RMS norm has a weight and no bias": (2 * d, 0)})
