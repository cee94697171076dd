"""How many operations are LayerNorm and RMSNorm, as torch sees them, forward and backward?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm
from torch.nn.functional import rms_norm as torch_rms_norm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from normlab.experiments.settings import Count, check_settings

__all__ = [
    "NORMS",
    "Config",
    "Counts",
    "Result",
    "compose_layer_norm",
    "compose_rms_norm",
    "run",
]

Norm = Callable[[Tensor, Tensor, Tensor], Tensor]

# They return a view of their input, or give nothing but memory: no arithmetic is done.
_FREE = {
    "_unsafe_view",
    "alias",
    "as_strided",
    "detach",
    "empty",
    "expand",
    "squeeze",
    "t",
    "transpose",
    "unsqueeze",
    "view",
}


def compose_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """LayerNorm as a reader of the formula writes it, one torch operation for each sign."""
    centered = x - x.mean(-1, keepdim=True)
    var = centered.square().mean(-1, keepdim=True)
    return centered * torch.rsqrt(var + 1e-5) * weight + bias


def compose_rms_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """RMSNorm written the same way; `bias` is not used."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


NORMS: dict[str, Norm] = {
    "layer_norm, composed": compose_layer_norm,
    "rms_norm, composed": compose_rms_norm,
    "layer_norm, torch": lambda x, w, b: torch_layer_norm(x, x.shape[-1:], w, b, 1e-5),
    "rms_norm, torch": lambda x, w, b: torch_rms_norm(x, x.shape[-1:], w, 1e-5),
}


@dataclass(frozen=True)
class Config:
    """Every norm once forward and once backward, on CPU.

    Attributes:
        norms: names of :data:`NORMS`.
        rows: rows of the input.
        features: H.
    """

    norms: tuple[str, ...] = tuple(NORMS)
    rows: Count = 64
    features: Count = 256

    def __post_init__(self) -> None:
        check_settings(self)
        for name in self.norms:
            if name not in NORMS:
                raise ValueError(f"norms: got {name!r}; expected some of {'; '.join(NORMS)}")
        if min(self.rows, self.features) < 2:
            raise ValueError("rows, features: expected at least 2 of each")


@dataclass(frozen=True)
class Counts:
    """What torch dispatched for one norm.

    Attributes:
        norm: name.
        forward: names of the operations, in order, without views and allocations.
        backward: the same for the backward pass.
        forward_traffic: elements read and written by the operations of the forward pass, for
            each element of the input.
        backward_traffic: the same for the backward pass.
    """

    norm: str
    forward: tuple[str, ...]
    backward: tuple[str, ...]
    forward_traffic: float
    backward_traffic: float


@dataclass(frozen=True)
class Result:
    """Counts of all norms."""

    counts: tuple[Counts, ...]

    def of(self, norm: str) -> Counts:
        """Counts of one norm."""
        return next(c for c in self.counts if c.norm == norm)


class _Count(TorchDispatchMode):
    """Collects the operations that reach a kernel, and the elements that they touch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.elements = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in _FREE:
            self.names.append(name)
            touched = tree_leaves((args, kwargs, out))
            self.elements += sum(t.numel() for t in touched if isinstance(t, Tensor))
        return out


def _count(norm: str, config: Config) -> Counts:
    generator = torch.Generator().manual_seed(0)
    shape = (config.rows, config.features)
    x, dy = torch.randn(2, *shape, generator=generator)
    weight, bias = torch.randn(2, config.features, generator=generator)
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    with _Count() as forward:
        y = NORMS[norm](*leaves)
    with _Count() as backward:
        torch.autograd.grad(y, leaves, dy, allow_unused=True)
    return Counts(
        norm,
        tuple(forward.names),
        tuple(backward.names),
        forward.elements / x.numel(),
        backward.elements / x.numel(),
    )


def run(config: Config) -> Result:
    """Count for every norm."""
    return Result(tuple(_count(norm, config) for norm in config.norms))
