"""The ladder of layer norm, step by step: `python -m normlab.book.bench.ladder FILE` records it.

Each step computes forward and backward of the same tensors in every round, beside torch, torch
again, the composition and a copy, as in :mod:`normlab.book.bench`. What autograd and the call cost
is not in the times of the steps; it is in those of "called". Some cases are compiled for another
processor: one with vectors half as wide, as torch's own build has them, and one that rounds to
bfloat16 by integers.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from normlab import layers
from normlab.book.bench.cases import EPS, Case
from normlab.book.bench.reporting import describe_machine, with_kept_memory, write_record
from normlab.book.bench.timing import CONTROL, control_error, measure, paired_ratio
from normlab.book.kernel_ladder import loops as ladder
from normlab.kernels import numba_loops
from normlab.kernels.vectorized.blocks import KINDS, count_blocks
from normlab.kernels.vectorized.vectors import cpu_features

SETS = 4
CACHED = (64, 768)  # four tensors of 196 KB in float32: the second cache of a core
REPEATED = 100
SHAPES = ((4096, 768), (8192, 1024), (2048, 4096))
INTEGERS = "bfloat16, rounded by integers"
NARROW = ("float32, AVX2", "bfloat16, AVX2")


class Step(NamedTuple):
    """A step of the ladder."""

    forward: Callable[..., None]
    backward: Callable[..., None]
    streams: bool = False  #: whether both take the argument `streaming`
    in_blocks: bool = False  #: whether backward takes `beside` and `sums`


STEPS = {
    "loop": Step(ladder.loop, ladder.loop_backward),
    "lanes": Step(ladder.lanes, ladder.lanes_backward),
    "corrected": Step(ladder.corrected, ladder.corrected_backward),
    "streamed": Step(ladder.streamed, ladder.streamed_backward, True),
    "ahead": Step(ladder.layer_norm, ladder.ahead_backward, True),
    "blocks": Step(ladder.layer_norm, ladder.layer_norm_backward, True, True),
    "side by side": Step(ladder.layer_norm, ladder.side_by_side_backward, True, True),
}


class Rows:
    """Tensors of one shape and dtype, and what the steps write."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor) -> None:
        self.leaves = [t.detach().requires_grad_() for t in (x, weight, bias)]
        self.x, self.weight, self.bias, self.dy = x, weight.float(), bias.float(), dy
        self.rows, self.n = x.shape
        self.y, self.dx = torch.empty_like(x), torch.empty_like(x)
        self.stats = torch.zeros(3, self.rows)
        blocks = count_blocks(self.rows, self.n)
        self.partial = torch.zeros(blocks, 2, self.n)
        self.sums = torch.zeros(blocks, 2, self.n, dtype=torch.float64)

    def run(self, step: Step) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """y, dx, dweight and dbias of one step, past the cache where it streams and can."""
        self.partial.zero_()
        if step.forward is ladder.loop:
            return self._run_loop()
        forward, backward = self._plan(step)
        for arguments in forward:
            step.forward(*arguments)
        self.sums.zero_()
        for arguments in backward:
            step.backward(*arguments)
        both = self.sums.sum(0).float() if step.in_blocks else self.partial[0]
        return self.y, self.dx, both[0], both[1]

    @functools.cache  # noqa: B019 -- what Python does for each call is not to be timed
    def _plan(self, step: Step) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        aligned = all(t.data_ptr() % 64 == 0 for t in (self.y, self.dx))
        past = aligned and self.n * self.x.element_size() % 64 == 0
        blocks = self.blocks(step)
        return (
            [self.forward(step, 0, self.rows, past)],
            [self.backward(step, first, last, i, past) for first, last, i in blocks],
        )

    def blocks(self, step: Step) -> list[tuple[int, int, int]]:
        """First row, last row and number of each."""
        count = len(self.partial) if step.in_blocks else 1
        edges = [self.rows // 2 * i // count * 2 for i in range(count)] + [self.rows]
        return [(edges[i], edges[i + 1], i) for i in range(count)]

    def forward(self, step: Step, first: int, last: int, past: bool) -> tuple[Any, ...]:
        """What the forward pass of a step is called with."""
        at = self._address(self.x, self.y, self.stats), self._address(self.weight, self.bias)
        streaming = (past,) if step.streams else ()
        kind = KINDS[self.x.dtype]
        return kind, *at[0], self.rows, *at[1], first, last, self.n, EPS, *streaming

    def backward(self, step: Step, first: int, last: int, i: int, past: bool) -> tuple[Any, ...]:
        """What the backward pass is called with, for block `i`."""
        at = self._address(self.dy, self.x, self.dx, self.stats)
        w, partial, sums = self._address(self.weight, self.partial[i], self.sums[i])
        to = (0, partial, sums) if step.in_blocks else (partial,)
        streaming = (past,) if step.streams else ()
        return KINDS[self.x.dtype], *at, self.rows, w, *to, first, last, self.n, *streaming

    @staticmethod
    def _address(*tensors: Tensor) -> list[int]:
        return [t.data_ptr() for t in tensors]

    def _run_loop(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, w, b, y, dy, dx = (
            t.numpy() for t in (self.x, self.weight, self.bias, self.y, self.dy, self.dx)
        )
        mean, _, rstd = self.stats.numpy()
        dweight, dbias = self.partial[0].numpy()
        ladder.loop(x, w, b, EPS, y, mean, rstd)
        ladder.loop_backward(dy, x, mean, rstd, w, dx, dweight, dbias)
        return self.y, self.dx, self.partial[0, 0], self.partial[0, 1]


def make_rows(shape: tuple[int, int], dtype: str, offset: float = 0.0) -> Rows:
    """Rows around a mean."""
    (x, weight, bias), dy = Case("layer_norm", dtype, shape).tensors()
    return Rows((x + offset).detach(), weight.detach(), bias.detach(), dy)


def find_errors(step: Step, rows: Rows) -> dict[str, float]:
    """Largest error of each result against float64, over its largest value."""
    wide = [t.double().requires_grad_() for t in (rows.x, rows.weight, rows.bias)]
    y = Case("layer_norm", "float64", tuple(rows.x.shape)).bound(F)(*wide)
    expected = (y.detach(), *torch.autograd.grad(y, wide, rows.dy.double()))
    found = rows.run(step)
    return {
        name: float((a.double() - b).abs().max() / b.abs().max())
        for name, a, b in zip(("y", "dx", "dweight", "dbias"), found, expected, strict=True)
    }


def _copy(rows: Rows, *, streaming: bool) -> None:
    """x to y, then x + dy to dx: what no step can be faster than."""
    if not streaming:
        rows.y.copy_(rows.x)
        torch.add(rows.x, rows.dy, out=rows.dx)
        return
    kind, size = KINDS[rows.x.dtype], rows.x.numel()
    x, y, dy, dx = (t.data_ptr() for t in (rows.x, rows.y, rows.dy, rows.dx))
    ladder.copy(kind, x, 0, y, size)
    ladder.copy(kind, x, dy, dx, size)


def _by(module: Any, rows: Rows) -> object:
    norm = Case("layer_norm", "float32", tuple(rows.x.shape)).bound(module)
    return torch.autograd.grad(norm(*rows.leaves), rows.leaves, rows.dy)


def measure_case(shape: tuple[int, int], dtype: str, rounds: int = 15) -> dict[str, Any]:
    """Ratios to torch of all steps, of a copy and of one that streams."""
    held = dtype.partition(",")[0]
    # all take turns with the same tensors, which are several times a cache
    turn = itertools.cycle([make_rows(shape, held) for _ in range(SETS)])
    modules = {"torch": F, CONTROL: F, "composition": layers, "called": numba_loops}
    works: dict[str, Callable[[Rows], object]]
    works = {name: functools.partial(_by, module) for name, module in modules.items()}
    for name, step in STEPS.items():
        if name == "blocks" or (dtype != INTEGERS and (name != "loop" or held == "float32")):
            works[name] = functools.partial(Rows.run, step=step)
    works["copy"] = functools.partial(_copy, streaming=False)
    works["streamed copy"] = functools.partial(_copy, streaming=True)

    def in_turn(work: Callable[[Rows], object]) -> Callable[[], object]:
        return lambda: work(next(turn))

    times = measure({name: in_turn(work) for name, work in works.items()}, rounds=rounds)
    return {
        "shape": shape,
        "dtype": dtype,
        "milliseconds": 1e3 * float(np.median(times["torch"])),
        "control": control_error(times, "torch"),
        "ratio": {name: paired_ratio(each, times["torch"]) for name, each in times.items()},
    }


def measure_in_cache(dtype: str, rounds: int = 15) -> dict[str, Any]:
    """Nanoseconds a value of the last step on rows that stay in the cache: its arithmetic alone."""
    rows, step = make_rows(CACHED, dtype), STEPS["blocks"]
    (first, last, _), *_ = rows.blocks(step)
    calls = {
        "forward": lambda: ladder.repeat(
            step.forward, rows.forward(step, first, last, False), REPEATED
        ),
        "backward": lambda: ladder.repeat(
            step.backward, rows.backward(step, first, last, 0, False), REPEATED
        ),
    }
    times = measure(calls, rounds=rounds)
    values = REPEATED * rows.x.numel()
    return {"dtype": dtype, **{k: 1e9 * float(np.median(t)) / values for k, t in times.items()}}


def _build(dtype: str) -> dict[str, str]:
    """The environment in which numba compiles for the processor that a case names."""
    lacks = ("avx512bf16",) if dtype == INTEGERS else ("avx512", "avx10", "amx")
    features = ",".join(f"+{name}" for name in sorted(cpu_features()) if not name.startswith(lacks))
    found = {"NUMBA_CPU_FEATURES": features}
    return found if dtype == INTEGERS else {**found, "NUMBA_CPU_NAME": "haswell"}


def _measure_elsewhere(dtype: str) -> list[dict[str, Any]]:
    """All shapes in a process that compiles for another processor."""
    done = subprocess.run(
        [sys.executable, "-m", "normlab.book.bench.ladder", dtype],
        env={**os.environ, **_build(dtype)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


def main(path: str) -> None:
    """Measure all of it and write it to a file."""
    torch.set_num_threads(1)
    if path in (INTEGERS, *NARROW):
        print(json.dumps([measure_case(shape, path) for shape in SHAPES]))
        return
    cases = [measure_case(shape, dtype) for dtype in ("float32", "bfloat16") for shape in SHAPES]
    for dtype in (INTEGERS,) if "avx512bf16" in cpu_features() else ():
        cases += _measure_elsewhere(dtype)
    for dtype in NARROW if "avx512f" in cpu_features() else ():
        cases += _measure_elsewhere(dtype)
    in_cache = [measure_in_cache(dtype) for dtype in ("float32", "bfloat16")]
    found = {"machine": describe_machine(), "cases": cases, "in cache": in_cache}
    write_record(path, found)
    for case in cases:
        print(case["dtype"], *case["shape"], f"control {case['control']:.3f}")
        for name, ratio in case["ratio"].items():
            print(f"  {name:14} {ratio[0]:.3f} [{ratio[1]:.3f} {ratio[2]:.3f}]")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m normlab.book.bench.ladder FILE")
    with_kept_memory("normlab.book.bench.ladder")
    main(sys.argv[1])
