"""How does the size of a recurrent state change over time, with and without LayerNorm?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from normlab.experiments.settings import Count, Index, Positive
from normlab.layers import layer_norm

__all__ = ["Arm", "Config", "Result", "Trace", "run"]

Arm = Literal["none", "layer_norm"]


@dataclass(frozen=True)
class Config:
    """h ← relu(W h), or h ← relu(LN(W h)), without input; W is never trained.

    Attributes:
        arms: with and without the norm.
        gains: factors on W, which is drawn as He et al. do.
        seeds: of W and of the first state.
        units: size of the state.
        samples: states that run side by side.
        steps: time steps, T.
    """

    arms: tuple[Arm, ...] = ("none", "layer_norm")
    gains: tuple[Positive, ...] = (0.5, 1.5)
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)
    units: Count = 64
    samples: Count = 16
    steps: Count = 60


@dataclass(frozen=True)
class Trace:
    """One run.

    Attributes:
        arm: "none" or "layer_norm".
        gain: factor on W.
        seed: of W and the first state.
        length: Euclidean norm of the state after each step, mean over samples.
    """

    arm: str
    gain: float
    seed: int
    length: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    """All traces."""

    traces: tuple[Trace, ...]

    def lengths(self, arm: Arm, gain: float) -> list[tuple[float, ...]]:
        """One trace of lengths for each seed."""
        return [t.length for t in self.traces if (t.arm, t.gain) == (arm, gain)]


@torch.no_grad()
def run_one(config: Config, arm: Arm, gain: float, seed: int) -> Trace:
    """Iterate one network, in float64 so that neither 0 nor infinity is reached."""
    generator = torch.Generator().manual_seed(seed)
    size = config.units
    w = torch.randn(size, size, generator=generator, dtype=torch.float64)
    w *= gain * (2 / size) ** 0.5
    h = torch.randn(config.samples, size, generator=generator, dtype=torch.float64)
    lengths = []
    for _ in range(config.steps):
        a = h @ w.T
        if arm != "none":
            a = layer_norm(a, (size,))
        h = a.relu()
        lengths.append(h.norm(dim=-1).mean().item())
    return Trace(arm, gain, seed, tuple(lengths))


def run(config: Config) -> Result:
    """Iterate every arm with every gain and seed."""
    return Result(
        tuple(
            run_one(config, arm, gain, seed)
            for arm in config.arms
            for gain in config.gains
            for seed in config.seeds
        )
    )
