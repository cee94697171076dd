"""How much does the memory format change GroupNorm's accuracy on CPU?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import group_norm

from normlab.experiments.processor import vector_code, with_threads
from normlab.experiments.settings import Count, Index, check_settings
from normlab.kernel_models import group_statistics, group_transform

__all__ = ["Config", "Outcome", "Result", "run"]

MemoryFormat = Literal["contiguous", "channels_last"]
FORMATS: dict[MemoryFormat, torch.memory_format] = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
}


@dataclass(frozen=True)
class Config:
    """Float32 images of standard deviation 1 around one mean, in two memory formats.

    Attributes:
        means: of all values.
        side: height and width; from 32 on the kernel sums channels before it sums a group.
        channels: C.
        num_groups: divides C.
        batch: images.
        seeds: of the images.
    """

    means: tuple[float, ...] = (0.0, 10.0, 100.0, 1e3, 1e4)
    side: Count = 16
    channels: Count = 8
    num_groups: Count = 2
    batch: Count = 4
    seeds: tuple[Index, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.side < 2:
            raise ValueError(
                f"side: got {self.side}; planes of one value have no memory format, use 2 or more"
            )


@dataclass(frozen=True)
class Outcome:
    """Errors at one mean in one memory format, the largest of all seeds.

    Attributes:
        mean: of the input.
        memory_format: of the input.
        error: largest error of torch's output beside the same layer in float64.
        model_error: the same for the NumPy model of the kernel.
    """

    mean: float
    memory_format: MemoryFormat
    error: float
    model_error: float


@dataclass(frozen=True)
class Result:
    """All errors, and torch's version."""

    outcomes: tuple[Outcome, ...]
    torch: str

    def of(self, mean: float, memory_format: MemoryFormat) -> Outcome:
        """One outcome."""
        wanted = (mean, memory_format)
        return next(o for o in self.outcomes if (o.mean, o.memory_format) == wanted)


def _images(mean: float, seed: int, config: Config) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (config.batch, config.channels, config.side, config.side)
    return mean + torch.randn(shape, generator=generator)


def _errors(
    mean: float, memory_format: MemoryFormat, seed: int, config: Config
) -> tuple[float, float]:
    x = _images(mean, seed, config).contiguous(memory_format=FORMATS[memory_format])
    exact = group_norm(x.double().contiguous(), config.num_groups)
    channels_last = memory_format == "channels_last"
    with with_threads(1):  # the model adds up as one thread does
        y = group_norm(x, config.num_groups)
    code = vector_code()
    statistics = group_statistics(
        x.numpy(),
        config.num_groups,
        channels_last=channels_last,
        lanes=code.lanes,
        fused=code.fused,
    )
    modeled = group_transform(x.numpy(), statistics, channels_last=channels_last, fused=code.fused)
    return (
        (y.double() - exact).abs().max().item(),
        (torch.from_numpy(modeled).double() - exact).abs().max().item(),
    )


def run(config: Config) -> Result:
    """Measure every mean in both formats."""
    outcomes = []
    for mean in config.means:
        for memory_format in FORMATS:
            errors = [_errors(mean, memory_format, seed, config) for seed in config.seeds]
            torch_errors, model_errors = zip(*errors, strict=True)
            outcomes.append(Outcome(mean, memory_format, max(torch_errors), max(model_errors)))
    return Result(tuple(outcomes), torch.__version__)
