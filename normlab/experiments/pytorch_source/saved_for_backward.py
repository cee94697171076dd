"""What does each norm of torch keep for its backward pass, and how many bytes is that?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, group_norm, instance_norm, layer_norm, rms_norm

from normlab.experiments.settings import Count, check_settings
from normlab.kernel_models.rounding import StoredDtype

__all__ = ["NORMS", "Config", "Outcome", "Result", "run"]

Norm = Callable[[Tensor, Tensor, Tensor], Tensor]

# Each of them takes (N, C, L) with C = L, so that weight and bias fit them all.
NORMS: dict[str, Norm] = {
    "batch_norm": lambda x, w, b: batch_norm(x, None, None, w, b, True),
    "layer_norm": lambda x, w, b: layer_norm(x, x.shape[-1:], w, b),
    "rms_norm": lambda x, w, b: rms_norm(x, x.shape[-1:], w),
    "group_norm": lambda x, w, b: group_norm(x, 4, w, b),
    "instance_norm": lambda x, w, b: instance_norm(x, None, None, w, b),
}


@dataclass(frozen=True)
class Config:
    """Every norm on an input of the same shape, with weight and bias of its dtype, on CPU.

    Attributes:
        norms: names of :data:`NORMS`.
        dtypes: of input, weight and bias.
        batch: N.
        features: C and L.
    """

    norms: tuple[str, ...] = tuple(NORMS)
    dtypes: tuple[StoredDtype, ...] = ("float32", "bfloat16")
    batch: Count = 8
    features: Count = 64

    def __post_init__(self) -> None:
        check_settings(self)
        for name in self.norms:
            if name not in NORMS:
                raise ValueError(f"norms: got {name!r}; expected some of {', '.join(NORMS)}")
        if self.features % 4:
            raise ValueError(f"features: got {self.features}; expected a multiple of 4")


@dataclass(frozen=True)
class Outcome:
    """What one norm saved.

    Attributes:
        norm: name.
        dtype: of the input.
        tensors: saved tensors, the same one counted as often as it is saved.
        extra_shapes: shapes of saved memory that is neither input nor parameter.
        extra_bytes: size of that memory; what the norm costs beyond keeping its input.
        extra_inputs: the same, in sizes of the input.
    """

    norm: str
    dtype: StoredDtype
    tensors: int
    extra_shapes: tuple[tuple[int, ...], ...]
    extra_bytes: int
    extra_inputs: float


@dataclass(frozen=True)
class Result:
    """All norms, and torch's version."""

    outcomes: tuple[Outcome, ...]
    torch: str

    def of(self, norm: str, dtype: StoredDtype = "float32") -> Outcome:
        """One outcome."""
        return next(o for o in self.outcomes if (o.norm, o.dtype) == (norm, dtype))


def _outcome(norm: str, dtype: StoredDtype, config: Config) -> Outcome:
    real = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(0)
    shape = (config.batch, config.features, config.features)
    x = torch.randn(shape, generator=generator).to(real).requires_grad_()
    weight, bias = (torch.ones(config.features, dtype=real, requires_grad=True) for _ in "wb")
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        NORMS[norm](x, weight, bias)
    given = {t.untyped_storage().data_ptr() for t in (x, weight, bias)}
    extra = {
        t.untyped_storage().data_ptr(): t
        for t in saved
        if t.numel() and t.untyped_storage().data_ptr() not in given
    }
    size = sum(t.untyped_storage().nbytes() for t in extra.values())
    return Outcome(
        norm,
        dtype,
        len(saved),
        tuple(tuple(t.shape) for t in extra.values()),
        size,
        size / x.untyped_storage().nbytes(),
    )


def run(config: Config) -> Result:
    """Count for every norm and dtype."""
    outcomes = [_outcome(norm, dtype, config) for norm in config.norms for dtype in config.dtypes]
    return Result(tuple(outcomes), torch.__version__)
