"""How much does the memory format change GroupNorm's accuracy on CPU?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch.nn.functional import group_norm

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.processor import vector_code
from normlab.experiments.settings import Count, Index, Several, check_divides
from normlab.kernel_models import group_statistics, group_transform

MemoryFormat = Literal["contiguous", "channels_last"]


@dataclass(frozen=True)
class Config:
    """Float32 images of standard deviation 1 around one mean, in two memory formats."""

    means: tuple[float, ...] = (0.0, 10.0, 100.0, 1e3, 1e4)  #: of all values
    memory_formats: tuple[MemoryFormat, ...] = get_args(MemoryFormat)  #: of the input
    #: height and width; planes of one value have no memory format, and from 32 on the kernel sums
    #: channels before it sums a group
    side: Several = 16
    channels: Count = 8  #: C
    num_groups: Count = 2  #: divides C
    batch: Count = 4  #: images
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of the images

    def __post_init__(self) -> None:
        check_divides(self, "num_groups", "channels")


def run_one(
    config: Config, mean: float, memory_format: MemoryFormat, seed: int
) -> dict[str, float]:
    """Normalize in float32, by torch and by the NumPy model of its kernel.

    Measures:
        error: largest error of torch's output beside the same layer in float64.
        model_error: the same for the model.
    """
    shape = (config.batch, config.channels, config.side, config.side)
    x = mean + torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    exact = group_norm(x.double(), config.num_groups)
    channels_last = memory_format == "channels_last"
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    y, code = group_norm(x, config.num_groups), vector_code()
    statistics = group_statistics(
        x.numpy(),
        config.num_groups,
        channels_last=channels_last,
        lanes=code.lanes,
        fused=code.fused,
    )
    modeled = group_transform(x.numpy(), statistics, channels_last=channels_last, fused=code.fused)
    return {
        "error": (y.double() - exact).abs().max().item(),
        "model_error": (torch.from_numpy(modeled).double() - exact).abs().max().item(),
    }


run = Sweep(run_one, mean="means", memory_format="memory_formats", seed="seeds")
