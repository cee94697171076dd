"""How does the size of a recurrent state change over time, with and without LayerNorm?"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveFloat

from normlab.book.experiments.sweep import Seed, experiment
from normlab.layers import layer_norm

Norm = Literal["none", "layer_norm"]


@experiment(norm=("none", "layer_norm"), gain=(0.5, 1.5), seed=range(5))
@torch.no_grad()
def hidden_scale(norm: Norm, gain: PositiveFloat, seed: Seed) -> dict[str, list[float]]:
    """Iterate h ← relu(W h), or h ← relu(LN(W h)), in float64; W is never trained.

    Args:
        norm: "layer_norm", or "none".
        gain: factor on W, which is drawn as He et al. do.

    Returns:
        lengths: Euclidean norm of the state after each step, mean over samples.
    """
    generator = torch.Generator().manual_seed(seed)
    size = 64
    w = torch.randn(size, size, generator=generator, dtype=torch.float64)
    w *= gain * (2 / size) ** 0.5
    h = torch.randn(16, size, generator=generator, dtype=torch.float64)
    lengths = []
    for _ in range(60):
        a = h @ w.T
        if norm != "none":
            a = layer_norm(a, (size,))
        h = a.relu()
        lengths.append(h.norm(dim=-1).mean().item())
    return {"lengths": lengths}
