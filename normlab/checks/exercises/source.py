"""Graders of the exercises on torch's source; each returns a sentence that names the mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from normlab.checks.exercises.grading import Case, grade

__all__ = [
    "check_bias_gradient",
    "check_cpu_function",
    "check_kept_numbers",
    "check_rms_coefficients",
    "check_way_to_variance",
]

Answer = Callable[..., Any]


def _random(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def check_cpu_function(answer: Answer) -> str:
    """Grade `answer(name) -> str`, the C++ function that an operator runs for a CPU tensor.

    Returns:
        "right", "not answered yet", or what is wrong.

    Source:
        torch 2.13.0, `native_functions.yaml`.
    """
    fallback = "that serves backends without a function of their own; CPU has one"
    return grade(
        answer,
        [
            Case(("native_layer_norm",), "layer_norm_cpu", {fallback: "math_native_layer_norm"}),
            Case(("native_group_norm",), "native_group_norm", {fallback: "math_group_norm"}),
            Case(
                ("_fused_rms_norm",),
                "rms_norm_composite",
                {"that needs a GPU; the composite runs on a CPU": "_fused_rms_norm_cuda"},
                "_fused_rms_norm lists no CPU function; then the composite one runs",
            ),
            Case(("layer_norm",), "layer_norm_symint"),
            Case(
                ("batch_norm",),
                "batch_norm",
                {"that one lies deeper; what does batch_norm itself run?": "batch_norm_cpu"},
                "an operator without a list is one function with the operator's name",
            ),
        ],
    )


def check_way_to_variance(answer: Answer) -> str:
    """Grade `answer(norm, channels_last) -> str`, how torch gets the moments of float32 on CPU.

    The answers are "Welford", "two passes", "mean of squares" (less the square of the mean) and
    "operations" (no kernel of its own).

    Returns:
        "right", "not answered yet", or what is wrong.

    Source:
        torch 2.13.0, measured.
    """

    def case(norm: str, channels_last: bool, expected: str, hint: str) -> Case:
        return Case((norm, channels_last), expected, hint=hint)

    return grade(
        answer,
        [
            case("layer_norm", False, "Welford", "layer norm's rows go through RowwiseMoments"),
            case("batch_norm", False, "two passes", "batch norm sums once for the mean, once more"),
            case("rms_norm", False, "operations", "trace rms_norm: pow, mean, rsqrt are operators"),
            case("group_norm", False, "Welford", "a contiguous group is a row of layer norm's"),
            case("group_norm", True, "mean of squares", "channels_last group norm loses digits"),
            case("instance_norm", True, "two passes", "instance norm first makes x contiguous"),
        ],
    )


def check_rms_coefficients(answer: Answer) -> str:
    """Grade `answer(dy, x, weight, rstd) -> (a, b)` with dx = a * dy * weight + b * x, RMSNorm's.

    Returns:
        "right", "not answered yet", or what is wrong.

    Source:
        the vector-Jacobian product of zhang2019root, Eq. 4, in the form of LayerNorm's kernel.
    """
    x, dy = 0.5 + _random(4, 6, seed=0), _random(4, 6, seed=1)
    weight = 1.5 + 0.5 * _random(6, seed=2)
    r = (x.square().mean(-1, keepdim=True) + 1e-2).rsqrt()
    ds, plain = (dy * weight * x).sum(-1, keepdim=True), (dy * x).sum(-1, keepdim=True)
    b = -ds * r**3 / 6
    mean, db = x.mean(-1, keepdim=True), (dy * weight).sum(-1, keepdim=True)
    return grade(
        answer,
        [
            Case(
                (dy, x, weight, r),
                (r, b),
                {
                    "b has the opposite sign: the term is subtracted": (r, -b),
                    "ds needs the weight: sum dy * weight * x": (r, -plain * r**3 / 6),
                    "the sum needs its 1/n": (r, 6 * b),
                    "one factor r comes from dx, two from x_hat: r to the third": (r, b / r**2),
                    "that is LayerNorm's b; RMSNorm subtracts no mean": (
                        r,
                        (db * mean - ds) * r**3 / 6,
                    ),
                },
                "wrong value; a and b have shape (rows, 1)",
                tolerance=1e-9,
            )
        ],
    )


def check_bias_gradient(answer: Answer) -> str:
    """Grade `answer(rows, threads) -> int`, LayerNorm's bias gradient on CPU for bfloat16 ones.

    Returns:
        "right", "not answered yet", or what is wrong.

    Source:
        torch 2.13.0, measured.
    """

    def case(rows: int, threads: int) -> Case:
        length = -(-rows // threads)
        shares = [min(length, rows - t * length) for t in range(threads)]
        return Case(
            (rows, threads),
            sum(min(256, share) for share in shares),
            {
                "that is the exact sum; each buffer is bfloat16 and stops": rows,
                "each thread has a buffer of its own": min(256, rows),
                "a thread adds only the rows that it has": 256 * threads,
            },
        )

    return grade(answer, [case(100, 1), case(1000, 1), case(1000, 2), case(300, 2), case(4096, 4)])


def check_kept_numbers(answer: Answer) -> str:
    """Grade `answer(norm, rows, features) -> int`: numbers kept beside input and parameters.

    `norm` is "layer_norm" or "rms_norm", with weight, float32, on CPU.

    Returns:
        "right", "not answered yet", or what is wrong.

    Source:
        torch 2.13.0, measured.
    """
    return grade(
        answer,
        [
            Case(
                ("layer_norm", 5, 7),
                10,
                {
                    "mean and rstd are one number each per row": 5,
                    "the statistics belong to rows, not to features": 14,
                    "the normalized rows are not kept; backward computes them again": 45,
                },
            ),
            Case(
                ("rms_norm", 5, 7),
                40,
                {
                    "the product with the weight keeps its other factor, all of x_hat": 5,
                    "the square of x is not kept; its gradient needs x": 75,
                    "there is no mean, but there is one rstd per row": 35,
                },
            ),
        ],
    )
