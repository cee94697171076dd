"""The graders of the chapter on torch's source accept right answers and name each mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from normlab.book.kernel_models import add_lanes, sum_in_lanes
from normlab.book.sources import read_operator, torch_release

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
    "check_lane_sum": in_lanes,
    "check_one_pass_variance": shifted,
}


def one_below_another(x: Any, lanes: int) -> float:
    register = add_lanes_in_order(x, lanes)
    while len(register) > 1:
        register = register[::2] + register[1::2]
    return float(register[0])


def add_lanes_in_order(x: Any, lanes: int) -> Any:
    return np.array([np.add.accumulate(x[k::lanes])[-1] for k in range(lanes)], np.float32)


def coefficients_of_means(dy: Any, x: Any, weight: Any, rstd: Any) -> list[Any]:
    return [rstd, -(rstd**3) * (x * dy * weight).mean(1, keepdim=True)]


OTHER: dict[str, Callable[..., Any]] = {
    "check_cpu_function": lambda name: {
        "native_layer_norm": "layer_norm_cpu",
        "_fused_rms_norm": "rms_norm_composite",
        "layer_norm": "layer_norm_symint",
    }.get(name, name),
    "check_way_to_variance": lambda norm, last: {
        "layer_norm": "Welford",
        "rms_norm": "operations",
        "group_norm": ("Welford", "mean of squares")[last],
    }.get(norm, "two passes"),
    "check_rms_coefficients": coefficients_of_means,
    "check_bias_gradient": lambda rows, threads: int(
        np.minimum(256, np.bincount(np.arange(rows) // -(-rows // threads))).sum()
    ),
    "check_lane_sum": lambda x, n: float(sum_in_lanes(x[None], lanes=n)[0]),
    "check_one_pass_variance": welford,
}
WRONG = {
    "check_cpu_function": {
        "the operator": (lambda name: name, "its list names the function"),
        "the first of the list": (
            lambda name: next(iter(read_operator(name).kernels.values()), name),
            "that needs a GPU",
        ),
    },
    "check_way_to_variance": {
        "Welford": (lambda norm, last: "Welford", "batch norm sums once"),
        "two passes": (lambda norm, last: "two passes", "RowwiseMoments"),
        "one memory format": (lambda norm, last: way(norm, False), "loses digits"),
        "one pass": (
            lambda norm, last: "mean of squares" if last else way(norm, last),
            "makes x contiguous",
        ),
        "another word": (lambda norm, last: "welford", "expected one of 'Welford'"),
    },
    "check_rms_coefficients": {
        "no axis is kept": (
            lambda *given: [part[:, 0] for part in coefficients(*given)],
            "expected shape (4, 1)",
        ),
        "rstd squared": (
            lambda dy, x, w, r: (r, coefficients(dy, x, w, r)[1] / r),
            "r to the third",
        ),
    },
    "check_bias_gradient": {
        "rounded up": (lambda r, t: min(-(-r // t), 256) * t, "the last thread"),
        "rounded down": (lambda r, t: min(r // t, 256) * t, "rounded down"),
        "bounded as a whole": (lambda r, t: min(r, 256 * t), "the last thread"),
        "shares that differ by one": (
            lambda r, t: sum(min(256, len(part)) for part in np.array_split(np.arange(r), t)),
            "the last thread",
        ),
    },
    "check_lane_sum": {
        "neighbors": (one_below_another, "not neighbors"),
        "no tail": (lambda x, n: in_lanes(x, n, tail=False), "fill no register"),
    },
    "check_one_pass_variance": {
        "mean of squares": (naive, "before you square"),
        "Bessel's correction": (lambda v: welford(v, divisor=1), "divisor n-1, expected n"),
        "stored in a list": (lambda v: float(np.var(list(v))), "stores the row"),
        "stored in an array": (lambda v: np.fromiter(v, np.float32).var(), "stores the row"),
        "all values": (lambda v: [*v], "expected one number"),
        "not to the end": (lambda v: welford(next(v) for _ in range(19)), "left over"),
        "standard deviation": (lambda v: welford(v) ** 0.5, "square it"),
        "undivided": (lambda v: (lambda x: x.var() * len(x))(np.array([*v])), "divide it by n"),
        "not centered": (lambda v: np.mean([a**2 for a in v]), "subtract the mean first"),
    },
}


# The right answers are what torch does.


@pinned
@pytest.mark.parametrize(("rows", "threads"), [(100, 1), (1000, 2), (301, 2), (770, 3), (1025, 4)])
def test_the_bias_gradient_is_that_of_torch(rows: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    x = torch.ones(rows, 4).bfloat16()
    bias = torch.zeros(4, requires_grad=True)
    F.layer_norm(x, (4,), torch.ones(4), bias).backward(torch.ones_like(x))
    torch.set_num_threads(before)
    assert bias.grad is not None
    assert bias.grad.tolist() == [bias_gradient(rows, threads)] * 4
