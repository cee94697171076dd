"""The ladder of layer norm, step by step: `python -m normlab.bench.ladder FILE` records it.

Each step computes forward and backward of the same tensors in every round, beside torch, torch
again and a copy, as in :mod:`normlab.bench`. What autograd and the call cost is not in the times of
the steps. Bfloat16 has one case more: the last step, compiled for a processor that rounds by
integers.
"""

from __future__ import annotations

import functools
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

from normlab.bench.cases import EPS, Case
from normlab.bench.reporting import ALLOCATOR, describe_machine
from normlab.bench.timing import CONTROL, control_error, measure, paired_ratio
from normlab.bench.variants import make_copy
from normlab.kernels.vectorized import ladder
from normlab.kernels.vectorized.blocks import BLOCKS, KINDS
from normlab.kernels.vectorized.vectors import cpu_features

SHAPES = ((4096, 768), (8192, 1024), (2048, 4096))
ROUNDS = 15
INTEGERS = "bfloat16, rounded by integers"


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
    "streamed": Step(ladder.layer_norm, ladder.streamed_backward, True),
    "ahead": Step(ladder.layer_norm, ladder.ahead_backward, True),
    "blocks": Step(ladder.layer_norm, ladder.layer_norm_backward, True, True),
    "side by side": Step(ladder.layer_norm, ladder.side_by_side_backward, True, True),
}


class Rows:
    """Tensors of one shape and dtype, and what the steps write."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor) -> None:
        self.x, self.weight, self.bias, self.dy = x, weight.float(), bias.float(), dy
        self.rows, self.n = x.shape
        self.y, self.dx = torch.empty_like(x), torch.empty_like(x)
        self.stats = torch.zeros(3, self.rows)
        self.partial = torch.zeros(BLOCKS, 2, self.n)
        self.sums = torch.zeros(BLOCKS, 2, self.n, dtype=torch.float64)

    def run(self, step: Step) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """y, dx, dweight and dbias of one step."""
        self.partial.zero_()
        if step.forward is ladder.loop:
            return self._run_loop()
        kind, w, b = KINDS[self.x.dtype], self.weight.data_ptr(), self.bias.data_ptr()
        aligned = all(t.data_ptr() % 64 == 0 for t in (self.y, self.dx))
        whole = self.n * self.x.element_size() % 64 == 0
        streaming = (aligned and whole,) if step.streams else ()
        x, y, dx, dy, stats = (t.data_ptr() for t in (self.x, self.y, self.dx, self.dy, self.stats))
        for first, last, _ in self._blocks(step):
            step.forward(kind, x, y, stats, self.rows, w, b, first, last, self.n, EPS, *streaming)
        self.sums.zero_()
        partial, sums = self.partial.data_ptr(), self.sums.data_ptr()
        for first, last, i in self._blocks(step):
            p, s = partial + 8 * self.n * i, sums + 16 * self.n * i
            beside, to = ((0,), (p, s)) if step.in_blocks else ((), (p,))
            step.backward(
                kind, dy, x, dx, stats, self.rows, w, *beside, *to, first, last, self.n, *streaming
            )
        both = self.sums.sum(0).float() if step.in_blocks else self.partial[0]
        return self.y, self.dx, both[0], both[1]

    def _blocks(self, step: Step) -> list[tuple[int, int, int]]:
        count = min(BLOCKS, self.rows // 2) if step.in_blocks else 1
        edges = [self.rows // 2 * i // count * 2 for i in range(count)] + [self.rows]
        return [(edges[i], edges[i + 1], i) for i in range(count)]

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
    return Rows(*((t.detach()) for t in (x + offset, weight, bias)), dy)


def find_errors(step: Step, rows: Rows) -> dict[str, float]:
    """Largest error of each result against float64, over its largest value."""
    wide = [t.double().requires_grad_() for t in (rows.x, rows.weight, rows.bias)]
    y = F.layer_norm(wide[0], (rows.n,), *wide[1:], EPS)
    expected = (y.detach(), *torch.autograd.grad(y, wide, rows.dy.double()))
    found = rows.run(step)
    return {
        name: float((a.double() - b).abs().max() / b.abs().max())
        for name, a, b in zip(("y", "dx", "dweight", "dbias"), found, expected, strict=True)
    }


def _stream_copy(case: Case) -> Callable[[], object]:
    """The copy of a case with stores past the cache: x to y, then x + dy to dx."""
    rows = make_rows(case.shape, case.dtype)
    kind, size = KINDS[rows.x.dtype], rows.x.numel()
    x, y, dy, dx = (t.data_ptr() for t in (rows.x, rows.y, rows.dy, rows.dx))

    def both() -> Rows:
        ladder.copy(kind, x, 0, y, size)
        ladder.copy(kind, x, dy, dx, size)
        return rows

    return both


def measure_case(shape: tuple[int, int], dtype: str, rounds: int = ROUNDS) -> dict[str, Any]:
    """Ratios to torch of all steps, of a copy and of one that streams."""
    case = Case("layer_norm", dtype.partition(",")[0], shape)
    tensors, dy = case.tensors()
    norm = case.bound(F)

    def by_torch() -> object:
        return torch.autograd.grad(norm(*tensors), tensors, dy)

    rows = make_rows(shape, case.dtype)
    steps = {n: s for n, s in STEPS.items() if n != "loop" or case.dtype == "float32"}
    if dtype == INTEGERS:
        steps = {"blocks": STEPS["blocks"]}
    calls: dict[str, Callable[[], object]] = {"torch": by_torch, CONTROL: by_torch}
    calls |= {name: functools.partial(rows.run, step) for name, step in steps.items()}
    calls |= {"copy": make_copy(case), "streamed copy": _stream_copy(case)}
    times = measure(calls, rounds=rounds)
    return {
        "shape": shape,
        "dtype": dtype,
        "milliseconds": 1e3 * float(np.median(times["torch"])),
        "control": control_error(times, "torch"),
        "ratio": {name: paired_ratio(each, times["torch"]) for name, each in times.items()},
    }


def _without_the_instruction() -> dict[str, Any]:
    """All shapes in a process that compiles for a processor without it."""
    features = ",".join(f"+{name}" for name in sorted(cpu_features() - {"avx512bf16"}))
    done = subprocess.run(
        [sys.executable, "-m", "normlab.bench.ladder", "--integers"],
        env={**os.environ, "NUMBA_CPU_FEATURES": features},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


def main(path: str) -> None:
    """Measure all of it and write it to a file."""
    torch.set_num_threads(1)
    if path == "--integers":
        print(json.dumps([measure_case(shape, INTEGERS) for shape in SHAPES]))
        return
    cases = [measure_case(shape, dtype) for dtype in ("float32", "bfloat16") for shape in SHAPES]
    if "avx512bf16" in cpu_features():
        cases += _without_the_instruction()
    text = json.dumps({"machine": describe_machine("cpu"), "cases": cases}, indent=1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    for case in cases:
        print(case["dtype"], *case["shape"], f"control {case['control']:.3f}")
        for name, ratio in case["ratio"].items():
            print(f"  {name:14} {ratio[0]:.3f} [{ratio[1]:.3f} {ratio[2]:.3f}]")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m normlab.bench.ladder FILE")
    if any(os.environ.get(key) != value for key, value in ALLOCATOR.items()):
        os.environ.update(ALLOCATOR, OMP_NUM_THREADS="1")
        os.execv(sys.executable, [sys.executable, "-m", "normlab.bench.ladder", *sys.argv[1:]])
    main(sys.argv[1])
