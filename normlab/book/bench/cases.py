"""What is compared: a norm of one shape and dtype on one device, and what of memory it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from normlab import kernels
from normlab.book.bench import devices
from normlab.norms import NORMS

PASSES = ("forward", "backward", "both")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
GROUPS = 32
EPS = 1e-5
FUSED = ("add_layer_norm", "add_rms_norm")


@dataclass(frozen=True)
class Case:
    """A norm, alone or of a sum as `add_rms_norm`, of one shape and dtype on one device.

    `dtype` is a name of `DTYPES`, `which` is "forward", "backward" or "both".
    """

    norm: str
    dtype: str
    shape: tuple[int, ...]
    which: str = "both"
    device: str = "cpu"

    def __str__(self) -> str:
        where = "" if self.device == "cpu" else f" on {self.device}"
        return f"{self.norm} {self.dtype} {'x'.join(map(str, self.shape))} {self.which}{where}"

    @property
    def alone(self) -> str:
        """The norm without the sum before it."""
        return self.norm.removeprefix("add_")

    @property
    def adds(self) -> bool:
        """Whether a residual is added first, so that the sum is a second result."""
        return self.norm.startswith("add_")

    @property
    def bytes(self) -> int:
        """Of the input."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    @property
    def parameters(self) -> tuple[int, ...]:
        """Shape of weight and bias."""
        return self.shape[-1:] if NORMS[self.alone].parameters == "shape" else self.shape[1:2]

    def bound(self, module: Any) -> Callable[..., Tensor]:
        """f(x, weight[, bias]) of `normlab.layers`, `torch.nn.functional` or a back end.

        The norm of a sum has the residual behind x; `normlab.kernels` has it as one function, and
        for the others it is two calls.
        """
        if self.adds and module is not kernels:
            return self._as_two_calls(module)
        function = getattr(module, self.norm)
        given = {
            "normalized_shape": self.parameters,
            "num_groups": GROUPS,
            "running_mean": None,
            "running_var": None,
            "training": True,
            "eps": EPS,
        }
        signature = NORMS[self.alone].signature
        fixed = {name: value for name, value in given.items() if name in signature}
        names = [name for name in ("weight", "bias") if name in signature]

        def call(x: Tensor, *rest: Tensor) -> Any:
            residual = {"residual": rest[0]} if self.adds else {}
            parameters = dict(zip(names, rest[len(residual) :], strict=True))
            return function(x, **residual, **fixed, **parameters)

        return call

    def _as_two_calls(self, module: Any) -> Callable[..., Any]:
        norm = Case(self.alone, self.dtype, self.shape).bound(module)

        def add(x: Tensor, residual: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
            total = x + residual
            return norm(total, *parameters), total

        return add

    def tensors(self, seed: int = 0) -> tuple[list[Tensor], Tensor]:
        """Input (and residual) and parameters, which require gradients, and an upstream gradient.

        The last is for each result; the sum of a residual has the same one as its norm.
        """
        g = torch.Generator(self.device).manual_seed(seed)

        def normal(shape: tuple[int, ...]) -> Tensor:
            return torch.randn(shape, generator=g, device=self.device).to(DTYPES[self.dtype])

        shapes = [*[self.shape] * (1 + self.adds), self.parameters]
        if NORMS[self.alone].has_bias:
            shapes.append(self.parameters)
        made = [normal(s) for s in shapes]
        dy = normal(self.shape)
        return [t.requires_grad_() for t in made], dy


def count_saved(case: Case, function: Callable[..., Tensor]) -> float:
    """Bytes that forward keeps for backward beyond the input, over those of the input.

    A sum, which the block needs anyway, is not counted. On a GPU this is what forward leaves
    allocated there beyond its results.
    """
    tensors, _ = case.tensors()
    if case.device == "cuda":
        function(*tensors)  # compiles
        held, result = devices.held_after(lambda: function(*tensors))
        results = result if isinstance(result, tuple) else (result,)
        return (held - sum(t.nbytes for t in results)) / case.bytes
    kept: dict[int, int] = {}

    def keep(t: Tensor) -> Tensor:
        kept[t.data_ptr()] = t.nbytes
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        found = function(*tensors)
    for t in (*tensors, *(found[1:] if case.adds else ())):
        kept.pop(t.data_ptr(), None)
    return sum(kept.values()) / case.bytes


def count_peak(case: Case, function: Callable[..., Tensor]) -> float:
    """Most bytes that forward and backward hold at once, over those of the input."""
    tensors, one = case.tensors()
    dy = (one, one) if case.adds else one

    def once() -> None:
        torch.autograd.grad(function(*tensors), tensors, dy)

    once()
    if case.device == "cuda":
        return devices.peak_during(once) / case.bytes
    # without acc_events some versions of torch warn that events are lost between cycles
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as record:
        once()
    results = record.profiler.kineto_results
    events = [e for e in results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / case.bytes
