"""Graders of the exercises on fast norms; each returns a sentence that names the mistake."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random
from normlab.book.exercises.shared import known, wrong_outputs
from normlab.checks.formula import Formula
from normlab.layers import layer_norm


@grader(forbids=("layer_norm", "batch_norm", "group_norm", "instance_norm"))
def check_row(answer: Answer) -> Grading:
    """Grade `answer(x, weight, bias, eps) -> (y, read, written)`, layer norm of one row in NumPy.

    `read` and `written` are bytes: a row stays in the cache once it has come from memory.
    """
    for features, eps, dtype in ((4, 0.1, np.float32), (7, 0.5, np.float32), (10, 0.3, np.float64)):
        x, weight, bias = random(3, features, seed=features)
        y = layer_norm(x, (features,), weight, bias, eps)
        args = *(t.numpy().astype(dtype) for t in (x, weight, bias)), eps
        row = features * np.dtype(dtype).itemsize
        wrong = wrong_outputs(Formula("layer_norm", eps=eps), x, weight, bias)
        mistakes: dict[str, tuple[Tensor, int, int]] = {
            "the row stays in the cache: a second and a third reading take nothing from memory": (
                (y, 5 * row, row)
            ),
            "weight and bias are read, too": (y, row, row),
            "those are numbers; each has x.itemsize bytes": (y, 3 * features, features),
            "y is what is written, once": (y, 3 * row, 2 * row),
            "read comes before written": (y, row, 3 * row),
        }
        mistakes |= {sentence: (value, 3 * row, row) for sentence, value in wrong.items()}
        yield Question(args, (y, 3 * row, row), mistakes)
    x, weight, bias = random(3, 16, seed=16).float()
    x = x + 3e3  # in steps of 2e-4; a mean of squares there has steps of 1
    y = layer_norm(x.double(), (16,), weight.double(), bias.double(), 1e-5)
    args = *(t.numpy() for t in (x, weight, bias)), 1e-5
    hint = f"on a float32 row far from zero, {known('one_pass')}"
    yield Question(args, (y, 192, 64), hint=hint, tolerance=1e-2)


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
