"""What a call costs before anything is computed: `python -m normlab.book.bench.calls FILE`.

Each row leaves out one more part of a call than the row before, forward and backward together, so
that a difference is what the part costs where it stands. The calls of Python and of C that a row
makes are counted in a run of their own. For a GPU the kernels of Triton are called on a CPU with
their launches left out: that is what Python does before a launch, and no time of a GPU.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from normlab import kernels, layers
from normlab.book.bench.cases import Case
from normlab.book.bench.reporting import describe_machine, with_kept_memory
from normlab.book.bench.timing import CONTROL, control_error, measure, paired_ratio
from normlab.kernels import calls, differentiation, triton_rows
from normlab.kernels.differentiation import Kernels

SHAPES = ((8, 16), (64, 768))
Norm = Callable[[Tensor, Tensor, Tensor], Tensor]


class _Saved(torch.autograd.Function):
    """Keep what a norm keeps and allocate what it allocates; compute nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        stats = x.new_empty(3, len(x))
        ctx.save_for_backward(x, weight, stats)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)


class _Empty(torch.autograd.Function):
    """Do nothing: what remains is autograd and torch's own code around a function in Python."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.found = weight.detach()
        return x.detach()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        return dy, ctx.found, ctx.found


def _direct(function: type[torch.autograd.Function]) -> Any:
    """Its `apply`, without the questions that the kernels have asked before, too."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def _bare(known: Kernels, features: int) -> Norm:
    """The kernels in a function of a few lines, without what `normlab.kernels` knows beyond."""
    forward, backward = known.module.layer_norm, known.module.layer_norm_backward

    class Bare(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Any:
            y, stats = forward(x, weight, bias, features, 1e-5)
            ctx.save_for_backward(x, weight, stats)
            return y

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Any:
            x, weight, stats = ctx.saved_tensors
            return backward(dy, x, stats, weight, (True, True, True), features, 1e-5)

    return _direct(Bare)


def parts(features: int) -> dict[str, Norm]:
    """Layer norm of rows, with less and less around what computes."""
    known = kernels.backends()["numba"].kernels()
    shape = (features,)

    def layer(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return layers.layer_norm(x, shape, weight, bias)

    def checked(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return calls.layer_norm(known, x, shape, weight, bias, 1e-5)

    def applied(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        args = x, weight, bias, features, 1e-5
        return differentiation.apply(known, "layer_norm", layer, *args)[0]

    return {
        "normlab.kernels": lambda *t: kernels.layer_norm(t[0], shape, t[1], t[2], 1e-5),
        "no choice of a back end": checked,
        "no check of arguments": applied,
        "no second derivative, no message": _bare(known, features),
        "no loops": _direct(_Saved),
        "no memory: an empty autograd function": _direct(_Empty),
    }


def _both(norm: Norm, tensors: tuple[Tensor, ...], dy: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(norm(*tensors), tensors, dy)


def count_calls(call: Callable[[], object]) -> int:
    """Functions that one call enters, of Python and of C as far as Python calls them.

    Example:
        >>> count_calls(lambda: (lambda: None)())
        2
    """
    call()
    entered = 0

    def see(frame: object, event: str, argument: object) -> None:
        nonlocal entered
        entered += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(before)
    return entered - 1  # which sets the profile back


def measure_calls(shape: tuple[int, int], *, rounds: int = 41) -> dict[str, Any]:
    """Microseconds, ratios to torch and calls of each part, for forward and backward."""
    g = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(shape, generator=g) for _ in range(2))
    weight, bias = (torch.randn(shape[-1], generator=g) for _ in range(2))
    tensors = tuple(t.requires_grad_() for t in (x, weight, bias))

    def torch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(x, shape[-1:], weight, bias, 1e-5)

    norms = {"torch": torch_norm, CONTROL: torch_norm, **parts(shape[-1])}
    made = {name: _both(norm, tensors, dy) for name, norm in norms.items()}
    times = measure(made, rounds=rounds)
    return {
        "shape": list(shape),
        "control": control_error(times, "torch"),
        "parts": [
            {
                "name": name,
                "microseconds": 1e6 * statistics.median(values),
                "ratio": paired_ratio(values, times["torch"]).median,
                "calls": count_calls(made[name]),
            }
            for name, values in times.items()
            if name != CONTROL
        ],
    }


class _Launch:
    """Stands for a kernel of Triton; a launch of it does nothing."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *_, **__: None


@contextmanager
def without_launches() -> Iterator[Kernels]:
    """The kernels of Triton on tensors of a CPU, whose launches do nothing."""
    known = triton_rows.kernels()._replace(device="cpu")
    with (
        mock.patch.object(known.module, "forward", _Launch()),
        mock.patch.object(known.module, "backward", _Launch()),
    ):
        yield known


def measure_launch(shape: tuple[int, int], *, rounds: int = 41) -> dict[str, Any]:
    """Microseconds and calls of Python around the two launches that a layer norm on a GPU takes."""
    x, dy = torch.zeros(shape), torch.zeros(shape)
    weight, bias = torch.ones(shape[-1]), torch.zeros(shape[-1])
    tensors = tuple(t.requires_grad_() for t in (x, weight, bias))
    with without_launches() as known:

        def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
            return calls.layer_norm(known, x, shape[-1:], weight, bias, 1e-5)

        made = _both(norm, tensors, dy)
        empty = _both(_direct(_Empty), tensors, dy)
        times = measure({"call": made, CONTROL: made, "empty": empty}, rounds=rounds)
        return {
            "shape": list(shape),
            "control": control_error(times, "call"),
            "microseconds": 1e6 * statistics.median(times["call"]),
            "empty": 1e6 * statistics.median(times["empty"]),
            "calls": count_calls(made),
        }


THREADED = (
    Case("layer_norm", "float32", (8192, 1024)),
    Case("rms_norm", "float32", (8192, 1024)),
    Case("batch_norm", "float32", (8, 256, 56, 56)),
    Case("group_norm", "float32", (8, 256, 56, 56)),
)


def measure_threads(case: Case, threads: int, *, rounds: int = 15) -> dict[str, Any]:
    """Milliseconds of the wall on one thread and on several, by torch and by numba, and the bits.

    "speedup" is the median over rounds of the ratio within a round. "equal" says whether output
    and gradients have the same bits on both numbers of threads.
    """
    tensors, dy = case.tensors()
    norms = {
        "torch": case.bound(torch.nn.functional),
        "numba": case.bound(kernels.backends()["numba"]),
    }

    def on(count: int, norm: Callable[..., Tensor]) -> list[Tensor]:
        torch.set_num_threads(count)
        y = norm(*tensors)
        return [y, *torch.autograd.grad(y, tensors, dy)]

    before = torch.get_num_threads()
    try:
        made = {
            (name, n): lambda n=n, norm=norm: on(n, norm)
            for name, norm in norms.items()
            for n in (1, threads)
        }
        again = {CONTROL: made["torch", 1]}
        named = {f"{name} {n}": call for (name, n), call in made.items()}
        times = measure({**named, **again}, rounds=rounds, clock=time.perf_counter)
        found = {name: [made[name, n]() for n in (1, threads)] for name in norms}
    finally:
        torch.set_num_threads(before)
    return {
        "case": str(case),
        "threads": threads,
        "control": control_error(times, "torch 1"),
        "by": {
            name: {
                "milliseconds": [
                    1e3 * statistics.median(times[f"{name} {n}"]) for n in (1, threads)
                ],
                "speedup": paired_ratio(times[f"{name} 1"], times[f"{name} {threads}"]).median,
                "of torch": paired_ratio(
                    times[f"{name} {threads}"], times[f"torch {threads}"]
                ).median,
                "equal": all(map(torch.equal, *found[name])),
            }
            for name in norms
        },
    }


def main(path: str) -> None:
    """Measure all of it and write it to a file."""
    torch.set_num_threads(1)
    found = {
        "machine": describe_machine(),
        "calls": [measure_calls(shape) for shape in SHAPES],
        "launch": measure_launch(SHAPES[1]),
        "threads": [measure_threads(case, len(os.sched_getaffinity(0))) for case in THREADED],
    }
    text = json.dumps(found, indent=1)
    print(text)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m normlab.book.bench.calls FILE")
    with_kept_memory("normlab.book.bench.calls")
    main(sys.argv[1])
