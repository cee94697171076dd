"""The graders of the kernel models accept right answers and name each mistake."""

import numpy as np
import pytest

from normlab.checks.exercises import kernels as exercises
from normlab.kernel_models import add_lanes, sum_in_lanes


def _in_lanes(x, lanes, *, halves=True, tail=True):
    register = np.zeros(lanes, np.float32)
    for start in range(0, len(x) if tail else len(x) // lanes * lanes, lanes):
        part = x[start : start + lanes]
        register[: len(part)] += part
    return float(add_lanes(register, halves=halves))


def _blocks(x, lanes):
    sums = [np.add.accumulate(block)[-1] for block in np.array_split(x, lanes)]
    return float(add_lanes(np.array(sums, np.float32)))


def _shifted(values):
    first = next(values)
    n, total, squares = 1, np.float32(0), np.float32(0)
    for value in values:
        n, total = n + 1, total + (value - first)
        squares = squares + (value - first) ** 2
    return squares / np.float32(n) - (total / np.float32(n)) ** 2


def _welford(values, *, divisor=0):
    n, mean, squares = 0, np.float32(0), np.float32(0)
    for value in values:
        n, difference = n + 1, value - mean
        mean = mean + difference / np.float32(n)
        squares = squares + difference * (value - mean)
    return squares / np.float32(n - divisor)


def _naive(values):
    x = np.array(list(values), np.float32)
    return np.square(x).mean() - x.mean() ** 2


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("check_lane_sum", _in_lanes),
        ("check_lane_sum", lambda x, lanes: float(sum_in_lanes(x[None], lanes=lanes)[0])),
        ("check_one_pass_variance", _shifted),
        ("check_one_pass_variance", _welford),
    ],
)
def test_right_answers_pass(name, answer):
    assert getattr(exercises, name)(answer) == "right"


@pytest.mark.parametrize("name", exercises.__all__)
def test_unanswered_and_broken(name):
    check = getattr(exercises, name)
    assert check(lambda *_: None) == "not answered yet"
    assert "ZeroDivisionError" in check(lambda *_: 1 / 0)


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_lane_sum", lambda x, lanes: _in_lanes(x, lanes, tail=False), "are missing"),
        ("check_lane_sum", lambda x, lanes: float(x.astype(np.float64).sum()), "exact sum"),
        ("check_lane_sum", _blocks, "not a block of neighbors"),
        ("check_lane_sum", lambda x, lanes: _in_lanes(x, lanes, halves=False), "halves are added"),
        ("check_lane_sum", lambda x, _: float(np.add.accumulate(x)[-1]), "left to right"),
        ("check_lane_sum", lambda x, lanes: _in_lanes(x[::-1], lanes), "another order"),
        ("check_one_pass_variance", _naive, "before you square"),
        ("check_one_pass_variance", lambda v: _welford(v, divisor=1), "not n - 1"),
        ("check_one_pass_variance", lambda v: float(next(v)), "left over"),
        ("check_one_pass_variance", lambda v: [*v], "finite number"),
        ("check_one_pass_variance", lambda v: 3.0 + 0 * sum(v), "for a variance of"),
    ],
)
def test_mistakes_are_named(name, answer, says):
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong: ")
    assert says in verdict
