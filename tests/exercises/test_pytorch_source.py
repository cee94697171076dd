"""The graders of the chapter on torch's source accept right answers and name each mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from normlab.exercises import pytorch_source as exercises
from normlab.kernel_models import add_lanes, sum_in_lanes
from normlab.sources import read_operator, torch_release

pinned = pytest.mark.skipif(torch_release() != "2.13.0", reason="the answers are torch 2.13.0's")


def cpu_function(name: str) -> str:
    kernels = read_operator(name).kernels
    for key in ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
        if key in kernels:
            return kernels[key]
    return name


def way(norm: str, channels_last: bool) -> str:
    if norm == "group_norm" and channels_last:
        return "mean of squares"
    ways = {"batch_norm": "two passes", "instance_norm": "two passes", "rms_norm": "operations"}
    return ways.get(norm, "Welford")


def coefficients(dy: Any, x: Any, weight: Any, rstd: Any) -> tuple[Any, Any]:
    ds = (dy * weight * x).sum(-1, keepdim=True)
    return rstd, -ds * rstd**3 / x.shape[-1]


def bias_gradient(rows: int, threads: int) -> int:
    length = -(-rows // threads)
    return sum(min(256, len(range(t * length, rows)[:length])) for t in range(threads))


def kept(norm: str, rows: int, features: int) -> int:
    return 2 * rows if norm == "layer_norm" else rows + rows * features


def in_lanes(x: Any, lanes: int, *, halves: bool = True, tail: bool = True) -> float:
    register = np.zeros(lanes, np.float32)
    for start in range(0, len(x) if tail else len(x) // lanes * lanes, lanes):
        part = x[start : start + lanes]
        register[: len(part)] += part
    return float(add_lanes(register, halves=halves))


def shifted(values: Any) -> Any:
    first = next(values)
    n, total, squares = 1, np.float32(0), np.float32(0)
    for value in values:
        n, total = n + 1, total + (value - first)
        squares = squares + (value - first) ** 2
    return squares / np.float32(n) - (total / np.float32(n)) ** 2


def welford(values: Any, *, divisor: int = 0) -> Any:
    n, mean, squares = 0, np.float32(0), np.float32(0)
    for value in values:
        n, difference = n + 1, value - mean
        mean = mean + difference / np.float32(n)
        squares = squares + difference * (value - mean)
    return squares / np.float32(n - divisor)


def naive(values: Any) -> Any:
    x = np.array(list(values), np.float32)
    return np.square(x).mean() - x.mean() ** 2


RIGHT: dict[str, Callable[..., Any]] = {
    "check_cpu_function": cpu_function,
    "check_way_to_variance": way,
    "check_rms_coefficients": coefficients,
    "check_bias_gradient": bias_gradient,
    "check_kept_numbers": kept,
    "check_lane_sum": in_lanes,
    "check_one_pass_variance": shifted,
}


def test_other_right_answers_pass() -> None:
    assert (
        exercises.check_lane_sum(lambda x, n: float(sum_in_lanes(x[None], lanes=n)[0])) == "right"
    )
    assert exercises.check_one_pass_variance(welford) == "right"


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("check_way_to_variance", lambda norm, last: "Welford", "batch norm sums once"),
        ("check_way_to_variance", lambda norm, last: "two passes", "RowwiseMoments"),
        ("check_way_to_variance", lambda norm, last: way(norm, False), "loses digits"),
        (
            "check_way_to_variance",
            lambda norm, last: "mean of squares" if last else way(norm, last),
            "makes x contiguous",
        ),
        ("check_one_pass_variance", naive, "before you square"),
        ("check_one_pass_variance", lambda v: welford(v, divisor=1), "not n - 1"),
        ("check_one_pass_variance", lambda v: float(next(v)), "left over"),
        ("check_one_pass_variance", lambda v: [*v], "finite number"),
        ("check_one_pass_variance", lambda v: 3.0 + 0 * sum(v), "for a variance of"),
    ],
)
@pinned
def test_a_mistake_is_named(name: str, answer: Callable[..., Any], says: str) -> None:
    verdict = getattr(exercises, name)(answer)
    assert verdict.startswith("wrong") and says in verdict


# The right answers are what torch does.


@pinned
@pytest.mark.parametrize(("rows", "threads"), [(100, 1), (1000, 1), (1000, 2), (300, 2)])
def test_the_bias_gradient_is_that_of_torch(rows: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    x = torch.ones(rows, 4).bfloat16()
    bias = torch.zeros(4, requires_grad=True)
    F.layer_norm(x, (4,), torch.ones(4), bias).backward(torch.ones_like(x))
    torch.set_num_threads(before)
    assert bias.grad is not None
    assert bias.grad.tolist() == [bias_gradient(rows, threads)] * 4


@pinned
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_kept_numbers_are_those_of_torch(norm: str) -> None:
    x, w = torch.randn(5, 7, requires_grad=True), torch.randn(7, requires_grad=True)
    saved: dict[int, int] = {}
    given = {x.data_ptr(), w.data_ptr()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in given:
            saved[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = getattr(F, norm)(x, (7,), w)
    assert y.grad_fn is not None
    assert sum(saved.values()) == kept(norm, 5, 7)
