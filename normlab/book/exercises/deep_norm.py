"""Graders of the exercises on DeepNorm; each returns a sentence that names the mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from normlab.book.exercises.grading import UNANSWERED, Answer, Grading, Question, grader, what_fails
from normlab.checks.residual import check_deep_norm_init, check_residual
from normlab.residual import deep_norm_constants


@grader
def check_block(answer: Answer) -> Grading:
    """Grade `answer(x, branch, norm, alpha) -> y`, one DeepNorm block.

    Source:
        wang2022deepnet, Section 4.1.
    """

    def build(branch: Any, norm: Any, alpha: float) -> Callable[[Tensor], Tensor]:
        return lambda x: answer(x, branch, norm, alpha)

    questions = []
    for shape, alpha in (((2, 5), 3.0), ((3, 4), 1.5)):
        x = torch.linspace(-1, 1, math.prod(shape), dtype=torch.float64).view(shape)
        right = torch.sin(alpha * x + torch.tanh(x))
        mistakes = {
            "alpha belongs to the skip alone; the branch gets x": (
                torch.sin(alpha * x + torch.tanh(alpha * x))
            ),
            "that is the same but for the eps of the norm: multiply the skip by alpha, leave the "
            "branch as it is": torch.sin(x + torch.tanh(x) / alpha),
        }
        questions.append(Question((x, torch.tanh, torch.sin, alpha), right, mistakes))
    for question in questions:
        yield question.known(answer(*question.args))
    report = check_residual(build, like="deep_norm")
    yield "" if answer.error else what_fails(report)  # of an error the answer tells more
    yield from questions


@grader
def check_gains(answer: Answer) -> Grading:
    """Grade `answer(block, beta)`, which initializes `block` in place as DeepNorm does.

    Source:
        wang2022deepnet, Figure 2.
    """
    changed = False

    def init(block: nn.Module, beta: float) -> None:
        nonlocal changed
        before = nn.utils.parameters_to_vector(block.parameters()).detach()
        answer.run(block, beta)
        changed |= not torch.equal(before, nn.utils.parameters_to_vector(block.parameters()))

    for beta in (0.25, 0.6):
        report = check_deep_norm_init(init, beta=beta)
        wrong = what_fails(report)
        wrong += f", with beta {beta:g}" if wrong.startswith("gains are") else ""
        yield wrong if changed else UNANSWERED


@grader
def check_constants(answer: Answer) -> Grading:
    """Grade `answer(encoder_layers, decoder_layers)` for a model with both stacks.

    The answer is a tuple: the encoder's alpha and beta, the decoder's alpha and beta.

    Source:
        wang2022deepnet, Figure 2.
    """
    for n, m in ((6, 18), (100, 2)):
        a, b, c, d = right = tuple(deep_norm_constants(encoder_layers=n, decoder_layers=m))
        alone = (2 * n) ** 0.25, (8 * n) ** -0.25, (2 * m) ** 0.25, (8 * m) ** -0.25
        blind = (3 * n) ** 0.25, (12 * n) ** -0.25, c, d
        mistakes = {
            "the encoder feeds every decoder layer; (3N)^(1/4) does not know M": blind,
            "those are the constants of two single stacks": alone,
            "a decoder layer has three sublayers here, with cross-attention": (a, b, *alone[2:]),
            "N and M are exchanged": tuple(deep_norm_constants(encoder_layers=m, decoder_layers=n)),
            "alpha and beta are exchanged": (b, a, d, c),
        }
        # 27^(-1/16) and 27^(1/16) / sqrt(2) are as right as the rounded 0.81 and 0.87
        tolerance = abs(27 ** (-1 / 16) / 0.81 - 1) * 1.1
        hint = "compare with the table, entry by entry"
        yield Question((n, m), right, mistakes, hint, tolerance)


@grader
def check_sublayers(answer: Answer) -> Grading:
    """Grade `answer(sublayers)`, the tuple (alpha, beta) of a stack of so many sublayers.

    Source:
        wang2022deepnet, Section 4.3: the bound of one gradient step is 1, and v² + w² of every
        sublayer is 1 / alpha².
    """
    for s in (12, 300):
        mistakes = {
            "the argument counts sublayers already, not layers": (
                (2 * s) ** 0.25,
                (8 * s) ** -0.25,
            ),
            "v² + w² is 2 beta², because v and w both start at beta": (s**0.25, s**-0.25),
            "that is alpha², not alpha": (s**0.5, (4 * s) ** -0.25),
            "alpha and beta are exchanged": ((4 * s) ** -0.25, s**0.25),
        }
        hint = "put v = w = beta into both conditions and solve for alpha"
        yield Question((s,), (s**0.25, (4 * s) ** -0.25), mistakes, hint)


@grader
def check_growth_exponent(answer: Answer) -> Grading:
    """Grade `answer(alpha_exponent, beta_exponent, step)`, the exponent of N in the bound.

    With alpha proportional to N^alpha_exponent and beta to N^beta_exponent, one step of the
    kind "gradient" or "sign" moves the output by at most a multiple of N to this power.
    """
    for a, b in ((0.25, -0.25), (0.25, 0.0), (0.0, -0.5), (0.5, -0.5)):
        gradient, sign = 1 + 2 * b - 2 * a, 1 + b - a
        mistakes = {
            "2N sublayers add up: the sum itself brings a power of N": gradient - 1,
            "the gradient, too, is proportional to beta / alpha": sign,
            "alpha divides, beta multiplies": 1 - 2 * b + 2 * a,
        }
        yield Question((a, b, "gradient"), gradient, mistakes)
        mistakes = {
            "a sign step has the same length however small the gradient is": gradient,
            "2N sublayers add up: the sum itself brings a power of N": sign - 1,
        }
        yield Question((a, b, "sign"), sign, mistakes)
