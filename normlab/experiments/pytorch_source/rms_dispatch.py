"""Which calls of torch's RMSNorm can take a fused kernel, and what do the others do?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.experiments.settings import Count, Index

__all__ = ["Config", "Outcome", "Result", "compose", "run"]

# They compute nothing: a view of the same memory, or another dtype.
_PLUMBING = {"_to_copy", "alias", "detach", "view"}


@dataclass(frozen=True)
class Config:
    """Calls on this machine's CPU, one for each pair of dtypes.

    Attributes:
        rows: of the input.
        features: normalized ones.
        seed: of the numbers.
    """

    rows: Count = 64
    features: Count = 96
    seed: Index = 0


@dataclass(frozen=True)
class Outcome:
    """One call.

    Attributes:
        dtype: of the input.
        weight_dtype: of the weight.
        forward: arithmetic operations that torch dispatched, in order.
        warns: torch warns that the dtypes rule out the fused kernel.
        equals_composition: the output is bit for bit that of :func:`compose`.
        output_dtype: of the output.
    """

    dtype: str
    weight_dtype: str
    forward: tuple[str, ...]
    warns: bool
    equals_composition: bool
    output_dtype: str


@dataclass(frozen=True)
class Result:
    """All calls, and what is registered in this build of torch.

    Attributes:
        outcomes: one for each pair of dtypes.
        fused_on_cpu: a kernel of `_fused_rms_norm` is registered for the CPU.
        fused_on_cuda: one is registered for CUDA, which only a CUDA build has.
        composite: a fallback made of other operations is registered.
        fused_backward_error: name of the exception that `_fused_rms_norm_backward` raises on CPU
            tensors, or "".
        torch: version.
    """

    outcomes: tuple[Outcome, ...]
    fused_on_cpu: bool
    fused_on_cuda: bool
    composite: bool
    fused_backward_error: str
    torch: str

    def of(self, dtype: str, weight_dtype: str) -> Outcome:
        """One call."""
        return next(o for o in self.outcomes if (o.dtype, o.weight_dtype) == (dtype, weight_dtype))


def compose(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm as torch composes it: up to float32, the weight before the cast back.

    Args:
        x: (*, H).
        weight: (H,), of any floating dtype.
        eps: units of x².
    """
    wide = x.float()
    x_hat = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (x_hat * weight).to(x.dtype)


class _Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func.overloadpacket.__name__ not in _PLUMBING:
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@contextmanager
def _every_warning() -> Iterator[list[warnings.WarningMessage]]:
    """Torch gives this warning once in a process, unless told otherwise."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield caught
    finally:
        torch.set_warn_always(before)


def _outcome(dtype: torch.dtype, weight_dtype: torch.dtype, config: Config) -> Outcome:
    generator = torch.Generator().manual_seed(config.seed)
    x = torch.randn(config.rows, config.features, generator=generator).to(dtype)
    weight = torch.randn(config.features, generator=generator).to(weight_dtype)
    with _every_warning() as caught, _Names() as trace:
        y = rms_norm(x, (config.features,), weight, 1e-5)
    return Outcome(
        str(dtype).removeprefix("torch."),
        str(weight_dtype).removeprefix("torch."),
        tuple(trace.names),
        any("fused" in str(w.message) for w in caught),
        torch.equal(y, compose(x, weight, 1e-5)),
        str(y.dtype).removeprefix("torch."),
    )


def _fused_backward_error() -> str:
    x, rstd, weight = torch.ones(2, 4), torch.ones(2, 1), torch.ones(4)
    try:
        torch.ops.aten._fused_rms_norm_backward(x, x, (4,), rstd, weight, [True, True])
    except (RuntimeError, NotImplementedError) as error:
        return type(error).__name__
    return ""


def _has_kernel(operator: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))


def run(config: Config) -> Result:
    """Call RMSNorm with equal and with mixed dtypes."""
    pairs = (
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
    )
    fused = "aten::_fused_rms_norm"
    return Result(
        tuple(_outcome(dtype, weight_dtype, config) for dtype, weight_dtype in pairs),
        _has_kernel(fused, "CPU"),
        _has_kernel(fused, "CUDA"),
        _has_kernel(fused, "CompositeImplicitAutograd"),
        _fused_backward_error(),
        torch.__version__,
    )
