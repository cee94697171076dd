"""Graders of the exercises on batch norm; each returns a sentence that names the mistake."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.exercises.grading import Answer, Grading, Question, grader, random
from normlab.exercises.shared import fold_into_linear, merge_moments


@grader
def check_restoring_parameters(answer: Answer) -> Grading:
    """Grade `answer(running_mean, running_var, eps) -> (weight, bias)`.

    In evaluation, a batch norm with these parameters returns its input.

    Source:
        ioffe2015batch, Section 3, with `eps` taken into account.
    """
    mean, var, eps = random(3, seed=0), random(3, seed=1).square() + 0.1, 0.05
    root = (var + eps).sqrt()
    std, of_layer = var.sqrt(), (1 / root, -mean / root)
    mistakes = {
        "the layer divides by sqrt(var + eps), so sqrt(var) gives back too little": (std, mean),
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
        direction = "momentum is the weight of the new batch"
        corrected = "the buffer keeps the Bessel-corrected variance, var * count / (count - 1)"
        special = "the first batch is not special: it is averaged with the initial 0 and 1"
        mistakes = {
            corrected: buffers(var, old),
            f"{direction}, not of the old value": buffers(bessel, exchanged),
            f"{direction}, and the variance needs Bessel's correction": buffers(var, exchanged),
            special: (mean, bessel),
            "the running variance starts at 1, not at 0": (right[0], from_0),
        }
        hint = "write down the buffers after one step, then replace the start by them"
        yield Question((mean, var, count, momentum, steps), right, mistakes, hint)


@grader
def check_channel_norm(answer: Answer) -> Grading:
    """Grade `answer(x, eps) -> y`, batch norm in training of x (N, C, H, W), no parameters.

    Source:
        ioffe2015batch, Section 3.2.
    """
    x = 2 * random(4, 3, 2, 5, seed=2) + random(1, 3, 1, 1, seed=3)
    eps = 0.02

    def norm(dims: tuple[int, ...], divisor: int = 0) -> Tensor:
        centered = x - x.mean(dims, keepdim=True)
        var = centered.square().mean(dims, keepdim=True)
        if divisor:
            var = var * (x.numel() // 3) / divisor
        return centered / (var + eps).sqrt()

    centered, axes = x - x.mean((0, 2, 3), keepdim=True), (0, 2, 3)
    bessel = norm(axes, x.numel() // 3 - 1)
    mistakes = {
        "one mean for each channel and position; positions share it, too": norm((0,)),
        "one mean for each sample and channel is instance norm": norm((2, 3)),
        "one mean for each sample is layer norm": norm((1, 2, 3)),
        "one mean for each position of a sample is layer norm over channels": norm((1,)),
        "one mean for the whole tensor mixes the channels": norm((0, 1, 2, 3)),
        "the batch is normalized with the biased variance, divisor n": bessel,
        "eps stands inside the root": centered / (x.std(axes, correction=0, keepdim=True) + eps),
    }
    yield Question((x, eps), norm(axes), mistakes)


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


@grader
def check_input_gradient(answer: Answer) -> Grading:
    """Grade `answer(dx_hat, x_hat, rstd) -> dx` for batch norm in training, input (N, C).

    Source:
        ioffe2015batch, Section 3.
    """
    x, g = 2 * random(5, 3, seed=10), random(5, 3, seed=11)
    centered = x - x.mean(0)
    rstd = 1 / (centered.square().mean(0) + 0.01).sqrt()
    x_hat = centered * rstd
    through_mean, through_var = g.mean(0), x_hat * (g * x_hat).mean(0)
    by_rows = g - g.mean(1, keepdim=True) - x_hat * (g * x_hat).mean(1, keepdim=True)
    summed = g - 5 * (through_mean + through_var)
    mistakes = {
        "mean and variance depend on x; you took both as constants": rstd * g,
        "the variance depends on x; its path is missing": rstd * (g - through_mean),
        "the mean depends on x; its path is missing": rstd * (g - through_var),
        "the two subtracted terms are means over the batch, not sums": rstd * summed,
        "the means run over the batch (axis 0), not over the features": rstd * by_rows,
        "the factor rstd applies to all three terms": rstd * g - through_mean - through_var,
        "the factor rstd is missing": g - through_mean - through_var,
    }
    yield Question((g, x_hat, rstd), rstd * (g - through_mean - through_var), mistakes)


@grader
def check_synchronized_moments(answer: Answer) -> Grading:
    """Grade `answer(means, variances, counts) -> (mean, var)` of the union of several devices.

    `means` and `variances` (biased) are (devices, C), `counts` is (devices,).

    Source:
        peng2018megdet, Section 3.3, in the form that needs one message per device.
    """
    parts = [random(n, 4, seed=12 + n) + shift for n, shift in ((2, -2.0), (5, 0.0), (3, 4.0))]
    counts = torch.tensor([len(p) for p in parts], dtype=torch.float64)
    means = torch.stack([p.mean(0) for p in parts])
    variances = torch.stack([(p - p.mean(0)).square().mean(0) for p in parts])
    hint = "var = E[x²] - mean² holds for the union: find E[x²] of each device first"
    right, mistakes = merge_moments(counts, means, variances)
    yield Question((means, variances, counts), right, mistakes, hint)
