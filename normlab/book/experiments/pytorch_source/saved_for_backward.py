"""What does each norm of torch keep for its backward pass, and how many bytes is that?"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional

from normlab.book.experiments.sweep import experiment
from normlab.book.kernel_models.rounding import StoredDtype
from normlab.norms import NORMS

Norm = Literal["batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm"]
GROUPS = 4


def _divides(features: int) -> None:
    if features % GROUPS:
        raise ValueError(f"features: got {features}; expected a multiple of {GROUPS}, the groups")


@experiment(norm=get_args(Norm), dtype=("float32", "bfloat16"), condition=_divides)
def saved_for_backward(
    norm: Norm, dtype: StoredDtype, *, batch: PositiveInt = 8, features: PositiveInt = 64
) -> dict[str, Any]:
    """Look at what a norm with weight and bias saves of an input (N, C, L), on CPU.

    Args:
        norm: of torch; group norm has four groups.
        features: C and L, so that weight and bias fit all norms.

    Returns:
        tensors: saved tensors, the same one counted as often as it is saved.
        extra_shapes: shapes of saved memory that is neither input nor parameter.
        extra_bytes: size of that memory; what the norm costs beyond keeping its input.
        extra_inputs: the same, in sizes of the input.
    """
    shape = (batch, features, features)
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
        "extra_shapes": [list(t.shape) for t in extra.values()],
        "extra_bytes": size,
        "extra_inputs": size / x.untyped_storage().nbytes(),
    }
