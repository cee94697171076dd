"""What does each norm of torch keep for its backward pass, and how many bytes is that?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.settings import Count, check_settings
from normlab.kernel_models.rounding import StoredDtype
from normlab.norms import NORMS

Norm = Literal["batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm"]
GROUPS = 4


@dataclass(frozen=True)
class Config:
    """Every norm on an input of the same shape (N, C, L), with weight and bias, on CPU."""

    norms: tuple[Norm, ...] = get_args(Norm)  #: of torch; group norm has four groups
    dtypes: tuple[StoredDtype, ...] = ("float32", "bfloat16")  #: of input, weight and bias
    batch: Count = 8  #: N
    features: Count = 64  #: C and L, so that weight and bias fit all norms

    def __post_init__(self) -> None:
        check_settings(self)
        if self.features % GROUPS:
            raise ValueError(f"features: got {self.features}; expected a multiple of {GROUPS}")


def run_one(config: Config, norm: Norm, dtype: StoredDtype) -> dict[str, Any]:
    """Look at what one norm saves.

    Measures:
        tensors: saved tensors, the same one counted as often as it is saved.
        extra_shapes: shapes of saved memory that is neither input nor parameter.
        extra_bytes: size of that memory; what the norm costs beyond keeping its input.
        extra_inputs: the same, in sizes of the input.
    """
    shape = (config.batch, config.features, config.features)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    weight, bias = (torch.ones_like(x[0, 0], requires_grad=True) for _ in "wb")
    arguments = NORMS[norm].arguments(
        normalized_shape=x.shape[-1:], num_groups=GROUPS, weight=weight, bias=bias
    )
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        getattr(functional, norm)(x.requires_grad_(), *arguments)
    given = {t.untyped_storage().data_ptr() for t in (x, weight, bias)}
    extra = {t.untyped_storage().data_ptr(): t for t in saved if t.numel()}
    extra = {place: tensor for place, tensor in extra.items() if place not in given}
    size = sum(t.untyped_storage().nbytes() for t in extra.values())
    return {
        "tensors": len(saved),
        "extra_shapes": tuple(tuple(t.shape) for t in extra.values()),
        "extra_bytes": size,
        "extra_inputs": size / x.untyped_storage().nbytes(),
    }


run = Sweep(run_one, norm="norms", dtype="dtypes")
