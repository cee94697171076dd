"""Graders of the exercises on layer norm; each returns a sentence that names the mistake."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.book.exercises.grading import (
    Answer,
    Grading,
    Question,
    as_array,
    grader,
    random,
    uneven,
)
from normlab.book.exercises.shared import known, wrong_input_gradients, wrong_outputs
from normlab.checks.changes import gradient
from normlab.checks.formula import Formula
from normlab.checks.mutants import LAYER_NORM_MUTANTS
from normlab.layers import layer_norm


@grader
def check_count_means(answer: Answer) -> Grading:
    """Grade `answer(shape, normalized_shape) -> int`, the number of means that LayerNorm takes."""
    mistakes = {
        "each token has its own mean, not each sequence": 4,
        "one mean per feature is what a batch norm takes": 6,
        "that is how many numbers share one mean, over both axes": 30,
        "those are the entries, not the means": 120,
    }
    yield Question(((4, 5, 6), (6,)), 20, mistakes)
    mistakes = {"normalized_shape has two axes here, so a sequence shares one mean": 20}
    yield Question(((4, 5, 6), (5, 6)), 4, mistakes)
    yield Question(((7,), (7,)), 1, {"a single row has one mean": 7})


@grader(forbids=("layer_norm", "batch_norm", "group_norm", "instance_norm"))
def check_layer_norm(answer: Answer) -> Grading:
    """Grade `answer(x, weight, bias, eps) -> y`, LayerNorm over the last axis.

    Source:
        ba2016layer, Eq. 3 and 4, with `eps` inside the root.
    """
    for x, eps, seed in (
        (uneven(random(4, 4, seed=0), 0, 0.1), 0.1, 1),
        (2 + uneven(random(3, 4, seed=3), 0, 0.1), 0.1, 4),
        (uneven(random(2, 3, 5, seed=6), 1, 1e-3), 1e-5, 7),
    ):
        size = x.shape[-1]
        weight, bias = random(size, seed=seed), random(size, seed=seed + 1)
        first = {}
        if x.dim() == 2 and x.shape[0] == size:
            lost = (x - x.mean(-1)) / (x.var(-1, correction=0) + eps).sqrt()
            sentence = "without keepdim=True the means of the rows are spread over the columns"
            first[sentence] = lost * weight + bias
        mistakes = wrong_outputs(Formula("layer_norm", eps=eps), x, weight, bias, first=first)
        yield Question((x, weight, bias, eps), layer_norm(x, (size,), weight, bias, eps), mistakes)
    far = (1e3 + random(6, 64, seed=12)).float()
    weight, bias = random(64, seed=13).float(), random(64, seed=14).float()
    right = layer_norm(far.double(), (64,), weight.double(), bias.double(), 1e-5)
    # float32 has steps of 6e-5 at 1e3; mean(x²) - mean(x)² has steps of 6e-2
    hint = f"on float32 rows far from zero, {known('one_pass')}"
    yield Question((far, weight, bias, 1e-5), right, hint=hint, tolerance=1e-3)


@grader(forbids=("autograd", "layer_norm"))
def check_input_gradient(answer: Answer) -> Grading:
    """Grade `answer(dy, x, weight, eps) -> dx`, the gradient of LayerNorm by its input."""

    def mean(v: Tensor) -> Tensor:
        return v.mean(-1, keepdim=True)

    for shape in ((3, 5), (4, 4), (2, 3, 4)):
        x, dy = random(*shape, seed=0) * 2 + 1, random(*shape, seed=1)
        size, eps = shape[-1], 0.1
        weight = random(size, seed=2)
        leaf = x.clone().requires_grad_()
        layer_norm(leaf, (size,), weight, eps=eps).backward(dy)
        rstd = (mean((x - mean(x)).square()) + eps).rsqrt()
        x_hat = (x - mean(x)) * rstd
        g = dy * weight
        formula = Formula("layer_norm", eps=eps)
        first = {
            "eps belongs into rstd, too: the variance gets it before the root": (
                gradient(formula.replace(eps=0.0), x, weight, None, dy)
            ),
            "the sums need their 1/H": rstd * (g - size * (mean(g) + x_hat * mean(g * x_hat))),
            "the bars are means over the features of a row, not over the rows": (
                rstd * (g - g.mean(0) - x_hat * (g * x_hat).mean(0))
            ),
        }
        mistakes = wrong_input_gradients(formula, x, weight, dy, first=first)
        yield Question((dy, x, weight, eps), leaf.grad, mistakes, tolerance=1e-9)


@grader
def check_jacobian_rank(answer: Answer) -> Grading:
    """Grade `answer(features, eps) -> int`, the rank of LayerNorm's Jacobian at a generic row."""
    mistakes = {
        "two directions are lost: adding a constant, and stretching about the mean": 15,
        "adding the same number to all features changes nothing, so it is not full": 16,
    }
    yield Question((16, 0.0), 14, mistakes)
    yield Question((16, 1e-5), 15, {"with eps > 0 stretching the row does change the output": 14})
    mistakes = {"two features give -1 and 1 whatever they are, so nothing is left": 1}
    yield Question((2, 0.0), 0, mistakes)


@grader
def check_centering_weights(answer: Answer) -> Grading:
    """Grade `answer(w) -> v` such that RMSNorm(v x) = LayerNorm(w x) for every x, both plain.

    Source:
        jiang2023prermsnorm.
    """
    for shape in ((4, 6), (5, 5), (7, 3)):
        w = random(*shape, seed=0)
        mistakes = {
            "the mean of the outputs is the mean over the rows of w, one per input": (
                w - w.mean(1, keepdim=True)
            ),
            "one common number is not enough: each input has its own mean": w - w.mean(),
            "subtract the mean over the rows, not their sum": w - w.sum(0),
            "nothing has changed yet": w,
        }
        yield Question((w,), w - w.mean(0), mistakes)


@grader
def check_telltale_row(answer: Answer) -> Grading:
    """Grade `answer() -> x`, a row of shape (H,) that tells where `eps` stands.

    On it, with eps 1e-5, LayerNorm and the version with eps outside the root must differ by
    more than one half, and no other wrong forward formula of the suite's mutants may differ
    from LayerNorm by more than a twentieth. (A tenth would let every row with one half pass.)
    """
    x = torch.from_numpy(as_array(answer()))
    if x.dim() != 1 or x.numel() < 2 or not bool(x.isfinite().all()):
        yield f"expected one row of finite numbers, got shape {tuple(x.shape)}"
    right = layer_norm(x, x.shape, eps=1e-5)

    def error_of(name: str) -> float:
        return (LAYER_NORM_MUTANTS[name](x, x.shape, eps=1e-5) - right).abs().max().item()

    if error_of("eps_outside") <= 0.5:
        yield (
            "both versions agree on this row; the place of eps shows where the variance is not "
            "large compared with eps"
        )
    if error_of("bessel_corrected") > 0.05:
        yield "H - 1 instead of H shows here, too; take more features"
    if error_of("uncentered_numerator") > 0.05:
        yield "a missing mean shows here, too; take a row whose mean is 0"
