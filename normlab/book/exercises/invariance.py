"""Graders of the exercises on invariance; each returns a sentence that names the mistake."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, as_array, grader
from normlab.book.proofs.gradient_rules import pull_back
from normlab.book.proofs.invariances import TRANSFORMATIONS, is_invariant
from normlab.book.proofs.linear_norms import LINEAR_NORMS, LinearNorm, weight_norm
from normlab.layers import layer_norm


@grader
def check_composition(answer: Answer) -> Grading:
    """Grade `answer() -> set of names`: what leaves LayerNorm(weight_norm(W) x) alone.

    The right answer is measured, not stored.
    """
    got = answer()
    if not isinstance(got, set | frozenset | list | tuple):
        yield f"expected a set of names, got {type(got).__name__}"
    for name in got:
        if name not in list(TRANSFORMATIONS):
            yield f"{name!r} is no transformation; take from {', '.join(TRANSFORMATIONS)}"
    both = LinearNorm(LINEAR_NORMS["layer_norm"].norm, parameterize=weight_norm)
    sentences = {
        "weight_rescale": "weight norm keeps the direction of each row, and λ does not turn it",
        "weight_recenter": "the layer norm would ignore 1 cᵀ, but weight norm comes first and "
        "divides each row by a length of its own, so the rows no longer share the change",
        "row_rescale": "weight norm removes the length of each row before the layer norm sees it",
        "data_rescale": "the rows are fixed, so the summed inputs scale with x and layer norm "
        "divides by their spread",
        "data_recenter": "W c is another number for each output; layer norm subtracts one mean",
        "case_rescale": "each case is divided by a spread of its own",
    }
    for name, sentence in sentences.items():
        if is_invariant(both, name) != (name in got):
            yield f"about {name}: {sentence}"


@grader
def check_equivalent_eps(answer: Answer) -> Grading:
    """Grade `answer(scale, eps) -> float`, with which Norm(W x) does what λ W does with `eps`."""
    for scale, eps in ((10.0, 1e-5), (0.25, 1e-3), (-2.0, 0.5)):
        mistakes = {
            "larger weights make eps matter less, not more": eps * scale**2,
            "eps is added to a variance, which grows with λ²": eps / abs(scale),
            "eps matters less for larger weights, and a variance grows with λ²": eps * abs(scale),
            "eps does not scale with the weights, so its effect changes": eps,
        }
        hint = "multiply numerator and denominator of (λ a) / sqrt(λ² v + eps) by 1 / λ"
        yield Question((scale, eps), eps / scale**2, mistakes, hint)


@grader
def check_negative_scale(answer: Answer) -> Grading:
    """Grade `answer(dweight, dx, scale) -> (dweight, dx)` at λ W from the two at W.

    The upstream gradient is the same, `eps` is 0, and `scale` may be negative.

    Source:
        ioffe2015batch, Section 3.3, for λ > 0.
    """
    for seed, scale in enumerate((4.0, -4.0, -0.5)):
        base = pull_back("layer_norm", seed=seed)
        there = pull_back("layer_norm", weight_scale=scale, seed=seed)
        dweight, dx = base.dweight, base.dx
        exchanged = (dweight / scale, dx)
        mistakes = {
            "the gradient by the weights is divided by λ, too": (dweight, there.dx),
            "the gradient by the weights is divided by λ, not multiplied": (dweight * scale, dx),
            "the gradient by the input keeps its size": (there.dweight, dx / scale),
        }
        if scale < 0:
            mistakes |= {
                "this is right for λ > 0; the output at λ W is minus the one at W if λ < 0, and "
                "its sign reaches dx": (dweight / abs(scale), dx),
                "two signs meet in the gradient by the weights, that of the output and that of "
                "λ, so it is divided by |λ|; only dx changes its sign": (dweight / scale, -dx),
                "the signs are interchanged: dW is divided by |λ|, and dx gets the sign": exchanged,
            }
        hint = "differentiate Norm(λ W x) = sign(λ) Norm(W x) by W, then by x"
        right = (there.dweight, there.dx)
        yield Question((dweight, dx, scale), right, mistakes, hint, tolerance=1e-9)


def _layer_norm_steps(seed: int, outputs: int = 6, inputs: int = 5) -> list[Tensor]:
    """Weights (out, in) of a layer norm layer over a few steps of plain SGD."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weight = normal(outputs, inputs)
    steps = [weight]
    for _ in range(5):
        x, target = normal(8, inputs), normal(8, outputs)
        leaf = weight.clone().requires_grad_()
        loss = (layer_norm(x @ leaf.T, (outputs,), eps=0.0).relu() - target).square().mean()
        (gradient,) = torch.autograd.grad(loss, leaf)
        weight = weight - 3.0 * gradient
        steps.append(weight)
    return steps


@grader
def check_conserved(answer: Answer) -> Grading:
    """Grade `answer(weight) -> Tensor`: of W (out, in), what SGD under layer norm never changes.

    The answer is tried on the weights of a training; it has to stay the same over the steps and
    to differ between two trainings.
    """
    runs = []
    for seed, *sizes in ((0,), (1,), (2, 3, 7)):
        said = [answer(w.clone()) for w in _layer_norm_steps(seed, *sizes)]
        if not all(isinstance(value, Tensor | np.ndarray | list) for value in said):
            yield f"expected a tensor, got {type(said[0]).__name__}"
        runs.append([torch.from_numpy(as_array(value)) for value in said])
    first, second, other = runs
    for run in runs:
        for value in run:
            if value.shape != run[0].shape or not value.numel():
                yield f"expected values of one shape, got {tuple(value.shape)}"
            if not value.isfinite().all():
                yield "expected finite values"
    moved = max(float((v - run[0]).abs().max()) for run in (first, other) for v in run)
    if moved > 1e-10:
        weight = _layer_norm_steps(0)[0]
        for sentence, mistake in (
            ("the length of W grows: the gradient is orthogonal to W", weight.norm()),
            ("the length of W grows: the gradient is orthogonal to W", weight.square().sum()),
            ("this is the mean of each row; which direction of W changes nothing?", weight.mean(1)),
            ("this is the sum of each row; which direction of W changes nothing?", weight.sum(1)),
        ):
            if first[0].shape == mistake.shape and torch.allclose(first[0], mistake):
                yield sentence
        yield f"it changes by {moved:.1g} within five steps"
    if torch.allclose(first[0], second[0]):
        yield "it does not depend on the weights, so of course it stays"
    if first[0].numel() < 5 or other[0].numel() < 7:
        yield "this stays, but there is a whole vector that does; give all of it"


@grader
def check_equilibrium(answer: Answer) -> Grading:
    """Grade `answer(lr, weight_decay, unit_gradient) -> float`, ‖W‖ where decay balances growth.

    `unit_gradient` is the length of the gradient at a weight of length 1. The exact answer and
    its limit for a small product of rate and decay are both accepted.

    Source:
        derived in the chapter on invariance.
    """
    for lr, decay, gradient in ((0.1, 1e-3, 2.0), (0.5, 2e-4, 0.3)):
        fourth = lr * gradient**2 / (2 * decay)
        mistakes = {
            "the gradient at length ‖W‖ is shorter, unit_gradient / ‖W‖": fourth**0.5,
            "that is the fourth power of the length": fourth,
            "decay acts on ‖W‖², whose change is 2 lr weight_decay ‖W‖²": (2 * fourth) ** 0.25,
            "decay is multiplied by the rate; the growth has its square": (fourth / lr) ** 0.25,
        }
        hint = (
            "set the growth lr² ‖g‖² equal to the loss 2 lr weight_decay ‖W‖², with "
            "‖g‖ = unit_gradient / ‖W‖"
        )
        yield Question((lr, decay, gradient), fourth**0.25, mistakes, hint, tolerance=1e-3)


@grader
def check_growing_rates(answer: Answer) -> Grading:
    """Grade `answer(lr, weight_decay, steps) -> rates`, (steps,), that replace weight decay.

    Source:
        li2020exponential, without momentum.
    """
    for lr, decay, steps in ((0.5, 0.1, 6), (2.0, 0.05, 4)):
        kept = 1 - lr * decay
        t = torch.arange(steps, dtype=torch.float64)
        falling, later = lr * kept ** (2 * t + 1), lr * kept ** (-2 * (t + 1))
        mistakes = {
            "the rate has to grow: undecayed weights are longer and so less sensitive": falling,
            "the effective rate goes with ‖W‖², so the exponent has a 2": lr * kept ** -(t + 1),
            "the effective rate goes with ‖W‖², so the exponent has a 2 t": lr * kept**-t,
            "check the first step: decay happens in it, too": lr * kept ** (-2 * t),
            "in step t the weights have been decayed t times, not t + 1": later,
        }
        hint = "let W_t = kept^t V_t and write down the step of V"
        yield Question((lr, decay, steps), lr * kept ** -(2 * t + 1), mistakes, hint)
