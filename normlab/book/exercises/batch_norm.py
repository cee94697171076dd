"""Graders of the exercises on batch norm; each returns a sentence that names the mistake."""

from __future__ import annotations

from torch import Tensor

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random, uneven
from normlab.book.exercises.shared import (
    fold_into_linear,
    known,
    wrong_input_gradients,
    wrong_outputs,
)
from normlab.checks.formula import Formula


@grader
def check_restoring_parameters(answer: Answer) -> Grading:
    """Grade `answer(running_mean, running_var, eps) -> (weight, bias)`.

    In evaluation, a batch norm with these parameters returns its input.

    Source:
        ioffe2015batch, Section 3, with `eps` taken into account.
    """
    for size, eps in ((3, 0.05), (5, 0.4)):
        mean, var = random(size, seed=size), random(size, seed=size + 10).square() + 0.1
        root = (var + eps).sqrt()
        std, of_layer = var.sqrt(), (1 / root, -mean / root)
        mistakes = {
            "the layer divides by sqrt(var + eps), so sqrt(var) gives back too little": (std, mean),
            known("eps_outside", "batch_norm"): (std + eps, mean),
            "the weight undoes a standard deviation, not a variance": (var + eps, mean),
            "the bias is added after the division, so it is the mean itself": (root, mean / root),
            "the bias gives the mean back, so its sign is plus": (root, -mean),
            "these are the factor and summand of the layer; you need their inverses": of_layer,
        }
        yield Question((mean, var, eps), (root, mean), mistakes)


@grader
def check_running_statistics(answer: Answer) -> Grading:
    """Grade `answer(mean, var, count, momentum, steps) -> (running_mean, running_var)`.

    The same batch, with biased variance `var` of `count` values, is shown `steps` times to a
    fresh layer, whose buffers start at 0 and 1.

    Source:
        ioffe2015batch, Algorithm 2, as moving averages; torch's conventions.
    """
    for mean, var, count, momentum, steps in ((3.0, 4.0, 5, 0.1, 1), (-2.0, 9.0, 4, 0.25, 6)):
        bessel = var * count / (count - 1)

        def buffers(var: float, kept: float, m: float = mean) -> tuple[float, float]:
            return (1 - kept) * m, kept + (1 - kept) * var

        old, exchanged = (1 - momentum) ** steps, momentum**steps
        right, from_0 = buffers(bessel, old), (1 - old) * bessel
        direction = known("momentum_reversed", "batch_norm")
        special = "the first batch is not special: it is averaged with the initial 0 and 1"
        mistakes = {
            known("running_var_biased", "batch_norm"): buffers(var, old),
            direction: buffers(bessel, exchanged),
            f"the running variance is the biased one, and {direction}": buffers(var, exchanged),
            special: (mean, bessel),
            "the running variance starts at 1, not at 0": (right[0], from_0),
        }
        hint = "write down the buffers after one step, then replace the start by them"
        yield Question((mean, var, count, momentum, steps), right, mistakes, hint)


@grader(forbids=("batch_norm",))
def check_channel_norm(answer: Answer) -> Grading:
    """Grade `answer(x, eps) -> y`, batch norm in training of x (N, C, H, W), no parameters.

    Source:
        ioffe2015batch, Section 3.2.
    """
    for shape, eps in (((4, 3, 2, 5), 0.02), ((2, 5, 3, 3), 0.5)):
        x = uneven(2 * random(*shape, seed=2), 1, 0.02) + random(1, shape[1], 1, 1, seed=3)
        formula = Formula("batch_norm", eps=eps)

        def over(*axes: int, x: Tensor = x, formula: Formula = formula) -> Tensor:
            return formula.replace(dims=axes)(x)

        mistakes = {
            "one mean for each channel and position; positions share it, too": over(0),
            "one mean for each sample and channel is instance norm": over(2, 3),
            "one mean for each sample is layer norm": over(1, 2, 3),
            "one mean for each position of a sample is layer norm over channels": over(1),
            "one mean for the whole tensor mixes the channels": over(0, 1, 2, 3),
        }
        yield Question((x, eps), formula(x), wrong_outputs(formula, x, first=mistakes))


@grader
def check_folding(answer: Answer) -> Grading:
    """Grade `answer(linear_weight, linear_bias, mean, var, weight, bias, eps) -> (W, b)`.

    One linear layer with W (out, in) and b does what the linear layer and the batch norm after
    it do in evaluation.

    Source:
        ioffe2015batch, Algorithm 2, step 11.
    """

    def case(outputs: int, inputs: int, seed: int) -> Question:
        matrix, shift = random(outputs, inputs, seed=seed), random(outputs, seed=seed + 1)
        mean, var = random(outputs, seed=seed + 2), random(outputs, seed=seed + 3).square() + 0.1
        weight, bias = 1 + random(outputs, seed=seed + 4), random(outputs, seed=seed + 5)
        eps = 0.05

        right, mistakes = fold_into_linear(matrix, shift, (mean, var), weight, bias, eps)
        return Question((matrix, shift, mean, var, weight, bias, eps), right, mistakes)

    yield case(4, 4, 4)
    yield case(3, 5, 20)


@grader(forbids=("autograd", "batch_norm"))
def check_input_gradient(answer: Answer) -> Grading:
    """Grade `answer(dx_hat, x_hat, rstd) -> dx` for batch norm in training, input (N, C).

    Source:
        ioffe2015batch, Section 3.
    """
    formula = Formula("batch_norm", eps=0.01)
    for samples, features in ((5, 3), (4, 4), (2, 7)):
        x, g = 2 * random(samples, features, seed=10), random(samples, features, seed=11)
        centered = x - x.mean(0)
        rstd = 1 / (centered.square().mean(0) + formula.eps).sqrt()
        x_hat = centered * rstd
        through_mean, through_var = g.mean(0), x_hat * (g * x_hat).mean(0)
        by_rows = g - g.mean(1, keepdim=True) - x_hat * (g * x_hat).mean(1, keepdim=True)
        summed = g - samples * (through_mean + through_var)
        mistakes = {
            "the two subtracted terms are means over the batch, not sums": rstd * summed,
            "the divisor of the last term is N, too, not N - 1": rstd
            * (g - through_mean - through_var * samples / (samples - 1)),
            "the means run over the batch (axis 0), not over the features": rstd * by_rows,
            "the factor rstd applies to all three terms": rstd * g - through_mean - through_var,
        }
        wrong = wrong_input_gradients(formula, x, None, g, first=mistakes)
        yield Question((g, x_hat, rstd), rstd * (g - through_mean - through_var), wrong)
