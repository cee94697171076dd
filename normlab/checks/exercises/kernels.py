"""Graders of the exercises that extend a kernel model; each returns a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from normlab.checks.exercises.grading import UNANSWERED, Case, grade

__all__ = ["check_lane_sum", "check_one_pass_variance"]

Answer = Callable[..., Any]


def _lane_sum(x: np.ndarray, lanes: int) -> float:
    register = np.zeros(lanes, np.float32)
    for start in range(0, len(x), lanes):
        part = x[start : start + lanes]
        register[: len(part)] += part
    while len(register) > 1:
        register = register[: len(register) // 2] + register[len(register) // 2 :]
    return float(register[0])


def check_lane_sum(answer: Answer) -> str:
    """Grade `answer(x, lanes) -> float`, the sum of a float32 row in a register of `lanes`.

    Lane k adds x[k], x[k + lanes], … in order; at the end the upper half of the register is added
    to the lower half until one value is left. The rows are such that every other order rounds
    differently.

    Returns:
        "right", "not answered yet", or what is wrong.
    """

    def case(x: np.ndarray, lanes: int) -> Case:
        whole = len(x) // lanes * lanes
        blocks = np.array_split(x, lanes)
        one_by_one = np.add.accumulate(np.array(x, dtype=np.float32))[-1]
        each = np.array([_lane_sum(x[k::lanes], 1) for k in range(lanes)], np.float32)
        return Case(
            (x, lanes),
            _lane_sum(x, lanes),
            {
                "the values that fill no register are missing": _lane_sum(x[:whole], lanes),
                "that is the exact sum; a lane is float32": float(x.astype(np.float64).sum()),
                "a lane takes every lanes-th value, not a block of neighbors": _lane_sum(
                    np.array([_lane_sum(block, 1) for block in blocks], np.float32), lanes
                ),
                "at the end halves are added, not one lane after the other": float(
                    np.add.accumulate(each)[-1]
                ),
                "that is one sum from left to right; each lane has its own": float(one_by_one),
            },
            "another order of additions than the one described",
            tolerance=0.0,
        )

    rng = np.random.default_rng(0)
    rows = []
    for n in (67, 203):
        values = 10.0 ** rng.uniform(0, 4, n) * rng.choice([-1, 1], n)
        rows.append(values.astype(np.float32))
    return grade(answer, [case(rows[0], 4), case(rows[1], 8), case(rows[0][:2], 2)])


def check_one_pass_variance(answer: Answer) -> str:
    """Grade `answer(x) -> float`, a biased variance that reads a float32 row once and survives.

    The row comes as an iterator of float32 scalars, so that it can be read only once, in order,
    and its float32 arithmetic stays float32.

    Returns:
        "right", "not answered yet", or what is wrong.
    """
    rng = np.random.default_rng(0)
    for mean, std, n in ((0.0, 1.0, 500), (1e4, 1.0, 500), (-3e3, 0.5, 77), (7.0, 0.0, 20)):
        x = (mean + std * rng.standard_normal(n)).astype(np.float32)
        exact = float(x.astype(np.float64).var())
        values = iter(x)
        try:
            got = answer(values)
        except Exception as error:  # a reader's function may fail in any way; say how
            return f"wrong: it raised {type(error).__name__}: {error}"
        if got is None:
            return UNANSWERED
        if next(values, None) is not None:
            return "wrong: values are left over; the variance needs all of them"
        if not isinstance(got, np.floating | float) or not np.isfinite(got):
            return f"wrong: expected a finite number, got {got!r}"
        if mean == 0 and abs(float(got) * (n - 1) / n / exact - 1) < 1e-4:
            return "wrong: the divisor is n, not n - 1"
        if abs(float(got) - exact) > 0.01 * exact + 1e-12:
            if mean == 0:
                return f"wrong: {float(got):.4g} for a variance of {exact:.4g}"
            return (
                f"wrong: {float(got):.4g} for a variance of {exact:.4g} around {mean:g}; "
                "subtract something close to the mean before you square"
            )
    return "right"
