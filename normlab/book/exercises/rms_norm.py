"""Graders of the exercises on RMSNorm; each returns a sentence that names the mistake."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random, uneven
from normlab.book.exercises.shared import wrong_input_gradients, wrong_outputs
from normlab.checks.changes import gradient
from normlab.checks.formula import Formula
from normlab.layers import rms_norm


def _mean(v: Tensor) -> Tensor:
    return v.mean(-1, keepdim=True)


@grader(forbids=("rms_norm",))
def check_rms_norm(answer: Answer) -> Grading:
    """Grade `answer(x, weight, eps) -> y`, RMSNorm over the last axis.

    Source:
        zhang2019root, Eq. 4, with `eps` inside the root.
    """
    for x, eps, seed in (
        (uneven(0.7 + 2 * random(5, 8, seed=0), 0, 0.1), 0.3, 1),
        (uneven(random(3, 4, seed=2), 0, 0.1), 0.1, 3),
        (uneven(random(2, 3, 6, seed=4), 1, 1e-3), 1e-5, 5),
    ):
        size = x.shape[-1]
        weight = 1.5 + 0.5 * random(size, seed=seed)
        mistakes = wrong_outputs(Formula("rms_norm", eps=eps), x, weight)
        yield Question((x, weight, eps), rms_norm(x, (size,), weight, eps), mistakes)


@grader(forbids=("autograd",))
def check_rms_gradient(answer: Answer) -> Grading:
    """Grade `answer(dy, x, weight, eps) -> dx`, the input gradient of RMSNorm.

    Source:
        the vector-Jacobian product of zhang2019root, Eq. 4.
    """
    for shape in ((4, 5), (2, 3, 6)):
        x, dy = 0.5 + random(*shape, seed=0), random(*shape, seed=1)
        size, eps = shape[-1], 1e-2
        weight = 1.5 + 0.5 * random(size, seed=2)
        leaf = x.clone().requires_grad_()
        (dx,) = torch.autograd.grad(rms_norm(leaf, (size,), weight, eps), leaf, dy)
        rrms = (_mean(x.square()) + eps).rsqrt()
        x_hat, g = x * rrms, dy * weight
        through_square = x_hat * _mean(g * x_hat)
        by_rows = rrms * (g - x_hat * (g * x_hat).mean(0))
        centered = rrms * (g - _mean(g) - through_square)
        formula, like_layer_norm = Formula("rms_norm", eps=eps), Formula("layer_norm", eps=eps)
        mistakes = wrong_input_gradients(formula, x, weight, dy) | {
            "eps belongs into the root here, too": (
                gradient(formula.replace(eps=0.0), x, weight, None, dy)
            ),
            "that is LayerNorm's gradient; RMSNorm subtracts no mean": (
                gradient(like_layer_norm, x, weight, None, dy)
            ),
            "no mean is subtracted in RMSNorm, so none is subtracted here": centered,
            "the sum needs its 1/H": rrms * (g - size * through_square),
            "the bar is a mean over the features of a row, not over the rows": by_rows,
        }
        yield Question((dy, x, weight, eps), dx, mistakes, tolerance=1e-9)


@grader
def check_jacobian_rank(answer: Answer) -> Grading:
    """Grade `answer(features, eps) -> int`, the rank of RMSNorm's Jacobian at a generic row."""
    mistakes = {
        "that is LayerNorm's; adding a constant does change RMSNorm's output": 14,
        "stretching the row changes nothing, so one direction is lost": 16,
    }
    yield Question((16, 0.0), 15, mistakes)
    yield Question((7, 0.0), 6)
    yield Question((16, 1e-5), 16, {"with eps > 0 stretching the row does change the output": 15})
    yield Question((1, 0.0), 0, {"a single feature gives 1 or -1, whatever its size": 1})


@grader
def check_half_precision(answer: Answer) -> Grading:
    """Grade `answer(x, weight, eps) -> y`, RMSNorm of a float16 row that overflows if squared."""
    twice_rounded = False
    for scale, eps, size in ((1.0, 0.1, 48), (1.0, 1e-6, 64), (300.0, 1e-6, 64), (1e-4, 1e-8, 64)):
        x = (scale * random(8, size, seed=0)).half()
        weight = (1 + 0.2 * random(size, seed=1)).half()
        wide = x.double(), weight.double()
        exact = rms_norm(wide[0], (size,), wide[1], eps)
        y = answer(x, weight, eps)
        if not isinstance(y, Tensor):
            yield f"expected a torch tensor, got {type(y).__name__}"
        if y.shape != x.shape:
            yield f"expected a tensor of shape {tuple(x.shape)}"
        if not bool(y.isfinite().all()):
            yield (
                f"the output is not finite for inputs near {scale:g}; small squares and small eps "
                "are 0 in float16"
            )
        if float(y.abs().max()) == 0:
            yield f"the output is 0 for inputs near {scale:g}, whose squares overflow"
        off = ((y.double() - exact).abs().max() / exact.abs().max()).item()
        hint = f"for inputs near {scale:g} the output is off by {off:.0%}"
        mistakes = wrong_outputs(Formula("rms_norm", eps=eps), *wide)
        yield Question((), exact, mistakes, hint, 5e-3, dtype=torch.float16).judge(y)
        twice_rounded |= bool((y != exact.half()).double().mean() > 0.02)
    if twice_rounded:
        yield "close, but rounded more than once; multiply by the weight before the cast"


@grader
def check_fold_into_linear(answer: Answer) -> Grading:
    """Grade `answer(matrix, shift, weight, bias) -> (matrix, shift)`, affine part folded away.

    The results A', c' have to satisfy A' x̂ + c' = A (w ⊙ x̂ + b) + c for every x̂.
    """
    for rows, columns in ((3, 4), (4, 4), (5, 2)):
        matrix, shift = random(rows, columns, seed=0), random(rows, seed=1)
        weight, bias = 1.5 + 0.5 * random(columns, seed=2), random(columns, seed=3)
        folded, moved = matrix * weight, shift + matrix @ bias
        unit = "the bias does not meet the weight: A (w x̂ + b), not A w (x̂ + b)"
        mistakes = {
            "the bias passes through the matrix, too": (folded, shift),
            unit: (folded, shift + folded @ bias),
            "the shift of the next layer is missing: add c": (folded, matrix @ bias),
            "the weight is missing in the matrix": (matrix, moved),
        }
        if rows == columns:
            sentence = "the weight multiplies the columns of the matrix, not the rows"
            mistakes[sentence] = (matrix * weight[:, None], moved)
        hint = "A' is A times diag(w), and c' is c + A b"
        yield Question((matrix, shift, weight, bias), (folded, moved), mistakes, hint)
