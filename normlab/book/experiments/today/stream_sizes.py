"""How does the residual stream grow with depth before training, and with larger weights?"""

from __future__ import annotations

import math

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from normlab.book.experiments.networks.decoder import Placement, make_block
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sweep import Seed, experiment
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


@experiment(
    placement=("post", "pre", "sandwich", "output", "scaled_pre", "keel"),
    gain=(1.0, 2.0),
    seed=range(3),
)
@torch.no_grad()
def stream_sizes(placement: Placement, gain: PositiveFloat, seed: Seed) -> dict[str, list[float]]:
    """Send random rows through 64 residual blocks of two matrices, at their initial weights.

    Args:
        placement: of RMS norms without weights.
        gain: factor of all matrices of the branches.

    Returns:
        sizes: mean square of the stream behind each block.
    """
    layers, width = 64, 128
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(64, width, generator=generator)
    sizes = []
    for layer in range(1, layers + 1):
        block = make_block(
            placement,
            Branch(width, gain, generator),
            lambda: RMSNorm(width, eps=1e-6, elementwise_affine=False),
            layer=layer,
            layers=layers,
        )
        x = block(x)
        sizes.append(rounded(x.square().mean().item(), 6))
    return {"sizes": sizes}
