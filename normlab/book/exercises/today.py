"""Graders of the exercises on today's models; each returns a sentence that names the mistake."""

from __future__ import annotations

import functools
import math

from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random
from normlab.layers import rms_norm


@grader
def check_largest_weight(answer: Answer) -> Grading:
    """Grade `answer(tokens, size)`, the largest weight that QK-norm with unit weights allows."""
    for tokens, size in ((3, 9), (64, 16), (1, 8)):
        root = math.sqrt(size)

        def weight(gap: float, others: int) -> float:
            return 1 / (1 + others * math.exp(-gap))

        mistakes = {
            "the other logits can be as low as minus the bound": weight(root, tokens - 1),
            "one of the keys is the one that is looked at": weight(2 * root, tokens),
            "the bound of a logit is the root of the size": weight(2 * size, tokens - 1),
            "the bound already holds after the division by the root": weight(2.0, tokens - 1),
        }
        yield Question((tokens, size), weight(2 * root, tokens - 1), mistakes)


def _branch(v: Tensor, matrix: Tensor) -> Tensor:
    return (v @ matrix).relu()


@grader
def check_sandwich(answer: Answer) -> Grading:
    """Grade `answer(x, branch, norm_in, norm_out) -> y`, the block with two norms.

    Source:
        ding2021cogview.
    """
    for shape in ((3, 5), (2, 3, 4)):
        size = shape[-1]
        x, matrix = random(*shape, seed=0), random(size, size, seed=1)
        first, last = 1.5 + 0.5 * random(size, seed=2), 0.5 + 0.2 * random(size, seed=3)
        branch = functools.partial(_branch, matrix=matrix)
        norm_in, norm_out = (
            functools.partial(rms_norm, normalized_shape=(size,), weight=weight)
            for weight in (first, last)
        )
        pre_norm = norm_out(x + branch(norm_in(x)))
        mistakes = {
            "that is Pre-LN; the second norm is missing": x + branch(norm_in(x)),
            "that is output norm; the first norm is missing": x + norm_out(branch(x)),
            "the second norm belongs to the branch, before the sum": pre_norm,
            "the skip passes no norm": norm_in(x) + norm_out(branch(norm_in(x))),
            "the norms are exchanged": x + norm_in(branch(norm_out(x))),
            "the skip is missing": norm_out(branch(norm_in(x))),
        }
        right = x + norm_out(branch(norm_in(x)))
        yield Question((x, branch, norm_in, norm_out), right, mistakes)


@grader
def check_stream(answer: Answer) -> Grading:
    """Grade `answer(block, gain)`, the mean square of a Pre-LN stream before training."""
    for block, gain in ((10, 2.0), (1, 1.0), (64, 1.0)):
        of_one_matrix, product = 1 + block * gain**2, (1 + gain**4) ** block
        mistakes = {
            "the branch has two matrices, so it grows with the square of the gain": of_one_matrix,
            "a mean square grows with the square of each factor": 1 + block * gain,
            "blocks count from 1: after the first, one branch was added": 1 + (block + 1) * gain**4,
            "blocks count from 1; the branch of `block` counts already": 1 + (block - 1) * gain**4,
            "the stream starts at mean square 1": block * gain**4,
            "that is the root mean square": (1 + block * gain**4) ** 0.5,
            "uncorrelated vectors: the mean squares add, they do not multiply": product,
        }
        yield Question((block, gain), 1 + block * gain**4, mistakes)
