"""How does the residual stream grow with depth before training, and with larger weights?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.decoder import Placement, make_block
from normlab.experiments.recording import rounded
from normlab.experiments.settings import Count, Index, Positive
from normlab.layers import RMSNorm


class Branch(nn.Module):
    """Two matrices and a rectifier that keep the mean square of their input, for gain 1."""

    def __init__(self, width: int, gain: float, generator: torch.Generator) -> None:
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.last = nn.Linear(width, width, bias=False)
        spread = gain / math.sqrt(width)
        nn.init.normal_(self.first.weight, std=math.sqrt(2) * spread, generator=generator)
        nn.init.normal_(self.last.weight, std=spread, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the branch to each row."""
        return self.last(self.first(x).relu())


@dataclass(frozen=True)
class Config:
    """Residual networks of two-matrix branches at their initial weights."""

    #: of RMS norms without weights
    placements: tuple[Placement, ...] = ("post", "pre", "sandwich", "output", "scaled_pre", "keel")
    gains: tuple[Positive, ...] = (1.0, 2.0)  #: factor of all matrices of the branches
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of weights and rows
    layers: Count = 64  #: number of blocks
    width: Count = 128  #: D
    rows: Count = 64  #: of the random input


@torch.no_grad()
def run_one(config: Config, placement: Placement, gain: float, seed: int) -> dict[str, Any]:
    """Send random rows through one network.

    Measures:
        sizes: mean square of the stream behind each block.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(config.rows, config.width, generator=generator)
    sizes = []
    for layer in range(1, config.layers + 1):
        block = make_block(
            placement,
            Branch(config.width, gain, generator),
            lambda: RMSNorm(config.width, eps=1e-6, elementwise_affine=False),
            layer=layer,
            layers=config.layers,
        )
        x = block(x)
        sizes.append(rounded(x.square().mean().item(), 6))
    return {"sizes": tuple(sizes)}


run = Sweep(run_one, placement="placements", gain="gains", seed="seeds")
