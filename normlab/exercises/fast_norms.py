"""Graders of the exercises on fast norms; each returns a sentence that names the mistake."""

from __future__ import annotations

import torch

from normlab.exercises.grading import Answer, Grading, Question, grader, random


@grader
def check_bytes_moved(answer: Answer) -> Grading:
    """Grade `answer(rows, features, bytes_each) -> int`, of a fused norm forward and backward."""
    for rows, features, width in ((4096, 768, 4), (8192, 1024, 2), (5, 7, 4)):
        one = rows * features * width
        mistakes = {
            "those are numbers; each has bytes_each bytes": 5 * rows * features,
            "that is forward alone: x and y": 2 * one,
            "that is backward alone: x, dy and dx": 3 * one,
            "backward reads the input, too": 4 * one,
            "the output is not read in backward: x is": 6 * one,
        }
        yield Question((rows, features, width), 5 * one, mistakes)


@grader
def check_saved_numbers(answer: Answer) -> Grading:
    """Grade `answer(norm, rows, features) -> int`, numbers kept beyond the input and the weight.

    One number for the mean, and one for the reciprocal of the deviation.
    """
    for rows, features in ((4096, 768), (3, 5)):
        whole = "the output in its normalized form can be had from x and a few numbers a row"
        mistakes = {
            whole: rows * features,
            f"{whole}; one of them is not enough": rows * features + rows,
            "the statistics are of rows, not of features": 2 * features,
            "layer norm keeps a mean, too": rows,
        }
        yield Question(("layer_norm", rows, features), 2 * rows, mistakes)
        mistakes = {
            whole: rows * features,
            "RMS norm subtracts no mean, so it keeps none": 2 * rows,
            "the statistics are of rows, not of features": features,
        }
        yield Question(("rms_norm", rows, features), rows, mistakes)


@grader
def check_sum_in_blocks(answer: Answer) -> Grading:
    """Grade `answer(dy) -> Tensor`, the bias gradient of bfloat16 rows, rounded once."""
    for rows, features in ((40, 6), (700, 5), (3000, 3)):
        dy = (1 + 0.25 * random(rows, features, seed=rows)).bfloat16()
        exact, mean = dy.double().sum(0), dy.double().mean(0).bfloat16()
        total = torch.zeros(features, dtype=torch.bfloat16)
        for row in dy:
            total = total + row
        mistakes = {
            "the sum runs in bfloat16, which stops growing: add in a wider dtype": total,
            "the bias is added to each row: sum over rows, do not average": mean,
            "sum over rows, axis 0": dy.double().sum(1).bfloat16(),
            "one number for each feature, not one for all": dy.double().sum().bfloat16(),
        }
        # rounding moves by half a step of bfloat16, 2^-9 of the value, another order by another
        right, dtype = exact.bfloat16(), torch.bfloat16
        yield Question((dy,), right, mistakes, tolerance=2**-8, dtype=dtype)
