"""How does the size of a recurrent state change over time, with and without LayerNorm?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.settings import Count, Index, Positive
from normlab.layers import layer_norm

Norm = Literal["none", "layer_norm"]


@dataclass(frozen=True)
class Config:
    """h ← relu(W h), or h ← relu(LN(W h)), without input; W is never trained."""

    norms: tuple[Norm, ...] = ("none", "layer_norm")  #: with and without the norm
    gains: tuple[Positive, ...] = (0.5, 1.5)  #: factors on W, which is drawn as He et al. do.
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: of W and of the first state
    units: Count = 64  #: size of the state
    samples: Count = 16  #: states that run side by side
    steps: Count = 60  #: time steps, T


@torch.no_grad()
def run_one(config: Config, norm: Norm, gain: float, seed: int) -> dict[str, Any]:
    """Iterate one network, in float64 so that neither 0 nor infinity is reached.

    Measures:
        lengths: Euclidean norm of the state after each step, mean over samples.
    """
    generator = torch.Generator().manual_seed(seed)
    size = config.units
    w = torch.randn(size, size, generator=generator, dtype=torch.float64)
    w *= gain * (2 / size) ** 0.5
    h = torch.randn(config.samples, size, generator=generator, dtype=torch.float64)
    lengths = []
    for _ in range(config.steps):
        a = h @ w.T
        if norm != "none":
            a = layer_norm(a, (size,))
        h = a.relu()
        lengths.append(h.norm(dim=-1).mean().item())
    return {"lengths": tuple(lengths)}


run = Sweep(run_one, norm="norms", gain="gains", seed="seeds")
