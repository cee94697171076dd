"""Graders of the exercises on torch's source; each returns a sentence that names the mistake."""

from __future__ import annotations

import numpy as np

from normlab.exercises.grading import Answer, Grading, Question, grader, random


@grader
def check_cpu_function(answer: Answer) -> Grading:
    """Grade `answer(name) -> str`, the C++ function that an operator runs for a CPU tensor.

    Source:
        torch 2.13.0, `native_functions.yaml`.
    """
    fallback = "that serves backends without a function of their own; CPU has one"
    yield Question(("native_layer_norm",), "layer_norm_cpu", {fallback: "math_native_layer_norm"})
    yield Question(("native_group_norm",), "native_group_norm", {fallback: "math_group_norm"})
    mistakes = {"that needs a GPU; the composite runs on a CPU": "_fused_rms_norm_cuda"}
    hint = "_fused_rms_norm lists no CPU function; then the composite one runs"
    yield Question(("_fused_rms_norm",), "rms_norm_composite", mistakes, hint)
    yield Question(("layer_norm",), "layer_norm_symint")
    mistakes = {"that one lies deeper; what does batch_norm itself run?": "batch_norm_cpu"}
    hint = "an operator without a list is one function with the operator's name"
    yield Question(("batch_norm",), "batch_norm", mistakes, hint)


@grader
def check_way_to_variance(answer: Answer) -> Grading:
    """Grade `answer(norm, channels_last) -> str`, how torch gets the moments of float32 on CPU.

    The answers are "Welford", "two passes", "mean of squares" (less the square of the mean) and
    "operations" (no kernel of its own).

    Source:
        torch 2.13.0, measured.
    """
    for norm, channels_last, expected, hint in (
        ("layer_norm", False, "Welford", "layer norm's rows go through RowwiseMoments"),
        ("batch_norm", False, "two passes", "batch norm sums once for the mean, once more"),
        ("rms_norm", False, "operations", "trace rms_norm: pow, mean, rsqrt are operators"),
        ("group_norm", False, "Welford", "a contiguous group is a row of layer norm's"),
        ("group_norm", True, "mean of squares", "channels_last group norm loses digits"),
        ("instance_norm", True, "two passes", "instance norm first makes x contiguous"),
    ):
        yield Question((norm, channels_last), expected, hint=hint)


@grader
def check_rms_coefficients(answer: Answer) -> Grading:
    """Grade `answer(dy, x, weight, rstd) -> (a, b)` with dx = a * dy * weight + b * x, RMSNorm's.

    Source:
        the vector-Jacobian product of zhang2019root, Eq. 4, in the form of LayerNorm's kernel.
    """
    x, dy = 0.5 + random(4, 6, seed=0), random(4, 6, seed=1)
    weight = 1.5 + 0.5 * random(6, seed=2)
    r = (x.square().mean(-1, keepdim=True) + 1e-2).rsqrt()
    ds, plain = (dy * weight * x).sum(-1, keepdim=True), (dy * x).sum(-1, keepdim=True)
    b = -ds * r**3 / 6
    mean, db = x.mean(-1, keepdim=True), (dy * weight).sum(-1, keepdim=True)
    mistakes = {
        "b has the opposite sign: the term is subtracted": (r, -b),
        "ds needs the weight: sum dy * weight * x": (r, -plain * r**3 / 6),
        "the sum needs its 1/n": (r, 6 * b),
        "one factor r comes from dx, two from x_hat: r to the third": (r, b / r**2),
        "that is LayerNorm's b; RMSNorm subtracts no mean": (r, (db * mean - ds) * r**3 / 6),
    }
    hint = "wrong value; a and b have shape (rows, 1)"
    yield Question((dy, x, weight, r), (r, b), mistakes, hint, tolerance=1e-9)


@grader
def check_bias_gradient(answer: Answer) -> Grading:
    """Grade `answer(rows, threads) -> int`, LayerNorm's bias gradient on CPU for bfloat16 ones.

    Source:
        torch 2.13.0, measured.
    """
    for rows, threads in ((100, 1), (1000, 1), (1000, 2), (300, 2), (4096, 4)):
        length = -(-rows // threads)
        shares = [min(length, rows - t * length) for t in range(threads)]
        mistakes = {
            "that is the exact sum; each buffer is bfloat16 and stops": rows,
            "each thread has a buffer of its own": min(256, rows),
            "a thread adds only the rows that it has": 256 * threads,
        }
        yield Question((rows, threads), sum(min(256, share) for share in shares), mistakes)


@grader
def check_kept_numbers(answer: Answer) -> Grading:
    """Grade `answer(norm, rows, features) -> int`: numbers kept beside input and parameters.

    `norm` is "layer_norm" or "rms_norm", with weight, float32, on CPU.

    Source:
        torch 2.13.0, measured.
    """
    mistakes = {
        "mean and rstd are one number each per row": 5,
        "the statistics belong to rows, not to features": 14,
        "the normalized rows are not kept; backward computes them again": 45,
    }
    yield Question(("layer_norm", 5, 7), 10, mistakes)
    mistakes = {
        "the product with the weight keeps its other factor, all of x_hat": 5,
        "the square of x is not kept; its gradient needs x": 75,
        "there is no mean, but there is one rstd per row": 35,
    }
    yield Question(("rms_norm", 5, 7), 40, mistakes)


def _lane_sum(x: np.ndarray, lanes: int) -> float:
    register = np.zeros(lanes, np.float32)
    for start in range(0, len(x), lanes):
        part = x[start : start + lanes]
        register[: len(part)] += part
    while len(register) > 1:
        register = register[: len(register) // 2] + register[len(register) // 2 :]
    return float(register[0])


@grader
def check_lane_sum(answer: Answer) -> Grading:
    """Grade `answer(x, lanes) -> float`, the sum of a float32 row in a register of `lanes`.

    Lane k adds x[k], x[k + lanes], … in order; at the end the upper half of the register is added
    to the lower half until one value is left. The rows are such that every other order rounds
    differently.
    """
    rng = np.random.default_rng(0)
    long, longer = (
        (10.0 ** rng.uniform(0, 4, n) * rng.choice([-1, 1], n)).astype(np.float32)
        for n in (67, 203)
    )
    for x, lanes in ((long, 4), (longer, 8), (long[:2], 2)):
        whole = len(x) // lanes * lanes
        blocks = [_lane_sum(block, 1) for block in np.array_split(x, lanes)]
        by_block = _lane_sum(np.array(blocks, np.float32), lanes)
        one_by_one = np.add.accumulate(np.array(x, dtype=np.float32))[-1]
        each = np.array([_lane_sum(x[k::lanes], 1) for k in range(lanes)], np.float32)
        by_lane = float(np.add.accumulate(each)[-1])
        mistakes = {
            "the values that fill no register are missing": _lane_sum(x[:whole], lanes),
            "that is the exact sum; a lane is float32": float(x.astype(np.float64).sum()),
            "a lane takes every lanes-th value, not a block of neighbors": by_block,
            "at the end halves are added, not one lane after the other": by_lane,
            "that is one sum from left to right; each lane has its own": float(one_by_one),
        }
        hint = "another order of additions than the one described"
        yield Question((x, lanes), _lane_sum(x, lanes), mistakes, hint, tolerance=0.0)


@grader
def check_one_pass_variance(answer: Answer) -> Grading:
    """Grade `answer(x) -> float`, a biased variance that reads a float32 row once and survives.

    The row comes as an iterator of float32 scalars, so that it can be read only once, in order,
    and its float32 arithmetic stays float32.
    """
    rng = np.random.default_rng(0)
    for mean, std, n in ((0.0, 1.0, 500), (1e4, 1.0, 500), (-3e3, 0.5, 77), (7.0, 0.0, 20)):
        x = (mean + std * rng.standard_normal(n)).astype(np.float32)
        exact = float(x.astype(np.float64).var())
        values = iter(x)
        got = answer(values)
        if next(values, None) is not None:
            yield "values are left over; the variance needs all of them"
        if not isinstance(got, np.floating | float) or not np.isfinite(got):
            yield f"expected a finite number, got {got!r}"
        if mean == 0 and abs(float(got) * (n - 1) / n / exact - 1) < 1e-4:
            yield "the divisor is n, not n - 1"
        if abs(float(got) - exact) > 0.01 * exact + 1e-12:
            remedy = f" around {mean:g}; subtract something close to the mean before you square"
            yield f"{float(got):.4g} for a variance of {exact:.4g}{remedy if mean else ''}"
