"""What is compared: a norm forward and backward by torch, by the back ends, and a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from normlab import kernels, layers
from normlab.kernels.fused_differentiation import ACTIVATIONS
from normlab.norms import NORMS

PASSES = ("forward", "backward", "both")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
GROUPS = 32
EPS = 1e-5
FUSED = ("add_layer_norm", "add_rms_norm", "layer_norm_gelu", "rms_norm_silu")


@dataclass(frozen=True)
class Case:
    """A norm of one shape and dtype.

    Attributes:
        norm: a name of `normlab.norms`, or a norm with its neighbor, as `add_rms_norm`.
        dtype: a name of `DTYPES`.
        shape: of the input.
        which: "forward", "backward" or "both".
    """

    norm: str
    dtype: str
    shape: tuple[int, ...]
    which: str = "both"

    def __str__(self) -> str:
        return f"{self.norm} {self.dtype} {'x'.join(map(str, self.shape))} {self.which}"

    @property
    def alone(self) -> str:
        """The norm without its neighbor."""
        return next(n for n in sorted(NORMS, key=len, reverse=True) if n in self.norm)

    @property
    def adds(self) -> bool:
        """Whether a residual is added first, so that the sum is a second result."""
        return self.norm.startswith("add_")

    @property
    def parameters(self) -> tuple[int, ...]:
        """Shape of weight and bias."""
        return self.shape[-1:] if NORMS[self.alone].parameters == "shape" else self.shape[1:2]

    def bound(self, module: Any) -> Callable[..., Tensor]:
        """f(x, weight[, bias]) of `normlab.layers` or `torch.nn.functional`.

        With a neighbor, `normlab.kernels` has it as one function, of a residual behind x where one
        is added; for the two modules above it is two calls.
        """
        if self.norm in FUSED and module is not kernels:
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

        def activate(x: Tensor, *parameters: Tensor) -> Tensor:
            return ACTIVATIONS[self.norm.rpartition("_")[2]][0](norm(x, *parameters))

        return add if self.adds else activate

    def tensors(self) -> tuple[list[Tensor], Tensor]:
        """Input (and residual) and parameters, which require gradients, and an upstream gradient.

        The last is for each result; the sum of a residual has the same one as its norm.
        """
        g = torch.Generator().manual_seed(0)
        shapes = [*[self.shape] * (1 + self.adds), self.parameters]
        if NORMS[self.alone].has_bias:
            shapes.append(self.parameters)
        made = [torch.randn(s, generator=g).to(DTYPES[self.dtype]) for s in shapes]
        dy = torch.randn(self.shape, generator=g).to(DTYPES[self.dtype])
        return [t.requires_grad_() for t in made], dy


def make_call(case: Case, function: Callable[..., Any], backend: str) -> Callable[[], object]:
    """One call of the wanted pass, under the back end `backend`."""
    tensors, one = case.tensors()
    dy = (one, one) if case.adds else one

    def forward() -> object:
        kernels.use(backend)
        with torch.no_grad():
            return function(*tensors)

    def both() -> object:
        kernels.use(backend)
        return torch.autograd.grad(function(*tensors), tensors, dy)

    if case.which == "forward":
        return forward
    if case.which == "both":
        return both
    kernels.use(backend)
    y = function(*tensors)
    return lambda: torch.autograd.grad(y, tensors, dy, retain_graph=True)


def ours(case: Case) -> Any:
    """The module of this package that has the norm: alone, or with its neighbor."""
    return kernels if case.norm in FUSED else layers


def make_copy(case: Case) -> Callable[[], object]:
    """What cannot be avoided: each tensor read or written once, by torch's own loops."""
    (x, *_), dy = case.tensors()
    x, y, z = x.detach(), torch.empty_like(dy), torch.empty_like(dy)

    def forward() -> object:
        return (torch.add(x, dy, out=y), z.zero_()) if case.adds else y.copy_(x)

    def backward() -> object:
        return torch.addcmul(x, dy, y, out=z) if case.adds else torch.add(x, dy, out=z)

    calls = {"forward": forward, "backward": backward, "both": lambda: (forward(), backward())}
    return calls[case.which]


def make_variants(case: Case, *, compiled: bool = False) -> dict[str, Callable[[], object]]:
    """The base "torch", what is compared with it, and a copy."""
    torchs = case.bound(F)
    made = {
        "torch": make_call(case, torchs, "composition"),
        "torch again": make_call(case, torchs, "composition"),
        **{name: make_call(case, case.bound(ours(case)), name) for name in kernels.available()},
        "copy": make_copy(case),
    }
    if case.norm in FUSED:
        name = kernels.available()[-1]
        made[f"{name}, two calls"] = make_call(case, case.bound(layers), name)
    if compiled:
        kernels.use("composition")
        graph = torch.compile(case.bound(layers), fullgraph=True)
        made["compiled composition"] = make_call(case, graph, "composition")
    return made


def count_saved(case: Case, function: Callable[..., Tensor], backend: str) -> float:
    """Bytes that forward keeps for backward beyond the input, over those of the input.

    A sum, which the block needs anyway, is not counted.
    """
    tensors, _ = case.tensors()
    kept: dict[int, int] = {}

    def keep(t: Tensor) -> Tensor:
        kept[t.data_ptr()] = t.numel() * t.element_size()
        return t

    with kernels.use(backend), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        found = function(*tensors)
    for t in (*tensors, *(found[1:] if case.adds else ())):
        kept.pop(t.data_ptr(), None)
    return sum(kept.values()) / (tensors[0].numel() * tensors[0].element_size())


def count_peak(case: Case, function: Callable[..., Tensor], backend: str) -> float:
    """Most bytes that forward and backward hold at once, over those of the input."""
    tensors, one = case.tensors()
    dy = (one, one) if case.adds else one

    def once() -> None:
        torch.autograd.grad(function(*tensors), tensors, dy)

    with kernels.use(backend):
        once()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            once()
    results = record.profiler.kineto_results
    events = [e for e in results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / (tensors[0].numel() * tensors[0].element_size())
