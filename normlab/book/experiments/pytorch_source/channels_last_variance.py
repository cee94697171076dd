"""How much does the memory format change GroupNorm's accuracy on CPU?"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import torch
from pydantic import Field, PositiveInt
from torch.nn.functional import group_norm

from normlab.book.experiments.processor import vector_code
from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.kernel_models import group_statistics, group_transform

MemoryFormat = Literal["contiguous", "channels_last"]
CHANNELS = 8


def _divides(num_groups: int) -> None:
    if CHANNELS % num_groups:
        raise ValueError(f"num_groups: got {num_groups}; expected a divisor of {CHANNELS}")


@experiment(
    mean=(0.0, 10.0, 100.0, 1e3, 1e4),
    memory_format=get_args(MemoryFormat),
    seed=range(3),
    condition=_divides,
)
def channels_last_variance(
    mean: float,
    memory_format: MemoryFormat,
    seed: Seed,
    *,
    side: Annotated[int, Field(ge=2)] = 16,
    num_groups: PositiveInt = 2,
) -> dict[str, float]:
    """Normalize images of standard deviation 1, by torch and by the NumPy model of its kernel.

    Args:
        side: height and width; planes of one value have no memory format, and from 32 on
            the kernel sums channels before it sums a group.
        num_groups: divides the eight channels.

    Returns:
        error: largest error of torch's output beside the same layer in float64.
        model_error: the same for the model.
    """
    shape = (4, CHANNELS, side, side)
    x = mean + torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    exact = group_norm(x.double(), num_groups)
    channels_last = memory_format == "channels_last"
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    y, code = group_norm(x, num_groups), vector_code()
    statistics = group_statistics(
        x.numpy(),
        num_groups,
        channels_last=channels_last,
        lanes=code.lanes,
        fused=code.fused,
    )
    modeled = group_transform(x.numpy(), statistics, channels_last=channels_last, fused=code.fused)
    return {
        "error": (y.double() - exact).abs().max().item(),
        "model_error": (torch.from_numpy(modeled).double() - exact).abs().max().item(),
    }
