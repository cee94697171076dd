"""Graders of the exercises on torch's source; each returns a sentence that names the mistake."""

from __future__ import annotations

import tracemalloc

import numpy as np

from normlab.book.exercises.grading import Answer, Grading, Question, grader, random
from normlab.book.exercises.shared import known

LONG = 20_000  # values of a row that is too long to be kept, four bytes each
WAYS = ("Welford", "two passes", "mean of squares", "operations")


@grader
def check_cpu_function(answer: Answer) -> Grading:
    """Grade `answer(name) -> str`, the C++ function that an operator runs for a CPU tensor.

    Source:
        torch 2.13.0, `native_functions.yaml`.
    """
    listed = "that is the operator; its list names the function"
    fallback = "that serves backends without a function of their own; CPU has one"
    mistakes = {fallback: "math_native_layer_norm", listed: "native_layer_norm"}
    yield Question(("native_layer_norm",), "layer_norm_cpu", mistakes)
    yield Question(("native_group_norm",), "native_group_norm", {fallback: "math_group_norm"})
    gpu = "that needs a GPU; the composite runs on a CPU"
    mistakes = {gpu: "_fused_rms_norm_cuda", listed: "_fused_rms_norm"}
    hint = "_fused_rms_norm lists no CPU function; then the composite one runs"
    yield Question(("_fused_rms_norm",), "rms_norm_composite", mistakes, hint)
    deeper = "that one lies deeper; what does the operator itself run?"
    mistakes = {deeper: "layer_norm_cpu", listed: "layer_norm"}
    yield Question(("layer_norm",), "layer_norm_symint", mistakes)
    hint = "an operator without a list is one function with the operator's name"
    yield Question(("batch_norm",), "batch_norm", {deeper: "batch_norm_cpu"}, hint)


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
        yield Question((norm, channels_last), expected, hint=hint, choices=WAYS)


@grader
def check_rms_coefficients(answer: Answer) -> Grading:
    """Grade `answer(dy, x, weight, rstd) -> (a, b)` with dx = a * dy * weight + b * x, RMSNorm's.

    Source:
        the vector-Jacobian product of zhang2019root, Eq. 4, in the form of LayerNorm's kernel.
    """
    for rows, size in ((4, 6), (3, 7)):
        x, dy = 0.5 + random(rows, size, seed=0), random(rows, size, seed=1)
        weight = 1.5 + 0.5 * random(size, seed=2)
        r = (x.square().mean(-1, keepdim=True) + 1e-2).rsqrt()
        ds, plain = (dy * weight * x).sum(-1, keepdim=True), (dy * x).sum(-1, keepdim=True)
        b = -ds * r**3 / size
        mean, db = x.mean(-1, keepdim=True), (dy * weight).sum(-1, keepdim=True)
        mistakes = {
            "b has the opposite sign: the term is subtracted": (r, -b),
            "ds needs the weight: sum dy * weight * x": (r, -plain * r**3 / size),
            "the sum needs its 1/n": (r, size * b),
            "one factor r comes from dx, two from x_hat: r to the third": (r, b / r**2),
            "r to the third, not squared": (r, b / r),
            "that is LayerNorm's b; RMSNorm subtracts no mean": (
                r,
                (db * mean - ds) * r**3 / size,
            ),
        }
        yield Question((dy, x, weight, r), (r, b), mistakes, tolerance=1e-9)


@grader
def check_bias_gradient(answer: Answer) -> Grading:
    """Grade `answer(rows, threads) -> int`, LayerNorm's bias gradient on CPU for bfloat16 ones.

    Source:
        torch 2.13.0, measured.
    """
    # divided with a rest, and without one; above and below what a buffer holds; and with a rest
    # below it where the other shares are above
    few = ((100, 1), (1000, 1), (1000, 2), (301, 2), (770, 3), (512, 3), (4096, 4))
    for rows, threads in (*few, (1025, 4), (4097, 16)):
        length = -(-rows // threads)
        shares = [min(length, rows - t * length) for t in range(threads)]
        mistakes = {
            "that is the exact sum; each buffer is bfloat16 and stops": rows,
            "each thread has a buffer of its own": min(256, rows),
            "the last thread has the rest, which is less": min(256, length) * threads,
            "a thread adds only the rows that it has": 256 * threads,
            "rounded down, some rows are lost": min(256, rows // threads) * threads,
        }
        yield Question((rows, threads), sum(min(256, share) for share in shares), mistakes)


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
        neighbors = each
        while len(neighbors) > 1:
            neighbors = neighbors[::2] + neighbors[1::2]
        mistakes = {
            "the values that fill no register are missing": _lane_sum(x[:whole], lanes),
            "that is the exact sum; a lane is float32": float(x.astype(np.float64).sum()),
            "a lane takes every lanes-th value, not a block of neighbors": by_block,
            "at the end halves are added, not one lane after the other": by_lane,
            "at the end halves are added, not neighbors": float(neighbors[0]),
            "that is one sum from left to right; each lane has its own": float(one_by_one),
        }
        hint = "the additions have another order than the one described"
        yield Question((x, lanes), _lane_sum(x, lanes), mistakes, hint, tolerance=0.0)


@grader
def check_one_pass_variance(answer: Answer) -> Grading:
    """Grade `answer(x) -> float`, a biased variance that reads a float32 row once and survives.

    The row comes as an iterator of float32 scalars, so that it can be read only once, in order,
    and its float32 arithmetic stays float32. What is kept must not grow with the row.
    """
    rng = np.random.default_rng(0)

    def row(mean: float, std: float, n: int) -> tuple[np.ndarray, float]:
        x = (mean + std * rng.standard_normal(n)).astype(np.float32)
        return x, float(x.astype(np.float64).var())

    for mean, std, n in ((0.5, 1.0, 20), (1e4, 1.0, 500), (-3e3, 0.5, 77), (7.0, 0.0, 20)):
        x, exact = row(mean, std, n)
        values = iter(x)
        got = answer(values)
        if next(values, None) is not None:
            yield "values are left over; the variance needs all of them"
        mistakes = {
            known("bessel"): exact * n / (n - 1),
            "that is the standard deviation; square it": exact**0.5,
            "that is the sum of squared distances; divide it by n": exact * n,
            "that is the mean of the squares; subtract the mean first": float(
                np.square(x.astype(np.float64)).mean()
            ),
        }
        remedy = f"around {mean:g} subtract something close to the mean before you square"
        tolerance = 0.01 if std else 1e-6
        yield Question((), exact, mistakes, remedy if mean else "", tolerance).judge(got)
    x, exact = row(0.0, 1.0, LONG)
    tracemalloc.start()
    try:
        got = answer(iter(x))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    yield Question((), exact, tolerance=0.01).judge(got)
    if most > 2 * LONG:
        yield "it stores the row, which was to be read once: keep a few sums"
