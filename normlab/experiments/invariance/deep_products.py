"""A chain of matrices: what the size of the weights and of the data does at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from normlab.checks.invariances import find_linear_norm
from normlab.experiments.invariance.invariant_mlp import HIDDEN_NORMS, HiddenNorm
from normlab.experiments.settings import Count, Index, Positive, check_settings

__all__ = ["Config", "Outcome", "Result", "run", "run_one"]


@dataclass(frozen=True)
class Config:
    """Linear layers, each followed by a norm with eps = 0 or by nothing, in float64.

    The variance of the weights is that which keeps the signal of the plain network of gain 1:
    1 / width, or 2 / width with ReLU.

    Attributes:
        norms: arms.
        gains: factors of every weight matrix.
        data_scales: factors of the input.
        seeds: of weights, data and upstream gradient.
        depth: layers.
        width: of all layers.
        samples: N.
        activation: after every norm; "none" or "relu".
    """

    norms: tuple[HiddenNorm, ...] = ("none", "batch_norm", "layer_norm", "rms_norm")
    gains: tuple[Positive, ...] = (0.5, 1.0, 2.0)
    data_scales: tuple[Positive, ...] = (1.0, 100.0)
    seeds: tuple[Index, ...] = (0, 1, 2)
    depth: Count = 30
    width: Count = 64
    samples: Count = 32
    activation: Literal["none", "relu"] = "none"

    def __post_init__(self) -> None:
        check_settings(self)
        for norm in self.norms:
            if norm not in HIDDEN_NORMS:
                raise ValueError(f"norms: got {norm!r}; expected some of {', '.join(HIDDEN_NORMS)}")
        if self.activation not in ("none", "relu"):
            raise ValueError(f"activation: got {self.activation!r}; expected 'none' or 'relu'")
        if min(*self.gains, *self.data_scales) <= 0:
            raise ValueError(
                f"gains, data_scales: got {self.gains}, {self.data_scales}; expected positive "
                "numbers, zero destroys the signal"
            )
        if self.depth < 1 or self.width < 2 or self.samples < 3:
            raise ValueError(
                f"depth, width, samples: got {self.depth}, {self.width}, {self.samples}; "
                "expected at least 1, 2 and 3"
            )


@dataclass(frozen=True)
class Outcome:
    """One network.

    Attributes:
        norm: arm.
        gain: factor of every weight matrix.
        data_scale: factor of the input.
        seed: of all draws.
        rms: root mean square of the signal, for the input and after every layer.
        gradient_rms: of the gradient with respect to the input, for an upstream gradient of
            rms 1.
    """

    norm: str
    gain: float
    data_scale: float
    seed: int
    rms: tuple[float, ...]
    gradient_rms: float

    @property
    def gradient_growth(self) -> float:
        """Factor of the squared gradient per layer, from the top down (geometric mean)."""
        return self.gradient_rms ** (2 / (len(self.rms) - 1))


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def of(self, norm: str, gain: float, data_scale: float = 1.0) -> list[Outcome]:
        """One outcome for each seed."""
        wanted = (norm, gain, data_scale)
        return [o for o in self.outcomes if (o.norm, o.gain, o.data_scale) == wanted]


def run_one(config: Config, norm: HiddenNorm, gain: float, data_scale: float, seed: int) -> Outcome:
    """Send data forth and one random gradient back."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = (data_scale * normal(config.samples, config.width)).requires_grad_()
    relu = config.activation == "relu"
    std = ((2 if relu else 1) / config.width) ** 0.5
    h = x
    rms = [float(h.detach().square().mean().sqrt())]
    for _ in range(config.depth):
        weight = gain * std * normal(config.width, config.width)
        if norm == "none":
            h = h @ weight.T
        else:
            h = find_linear_norm(norm)(weight, h[:, :, None])[:, :, 0]
        if relu:
            h = h.relu()
        rms.append(float(h.detach().square().mean().sqrt()))
    (gradient,) = torch.autograd.grad(h, x, normal(*h.shape))
    return Outcome(norm, gain, data_scale, seed, tuple(rms), float(gradient.square().mean().sqrt()))


def run(config: Config) -> Result:
    """Measure every norm with every gain, data scale and seed."""
    return Result(
        tuple(
            run_one(config, norm, gain, data_scale, seed)
            for norm in config.norms
            for gain in config.gains
            for data_scale in config.data_scales
            for seed in config.seeds
        )
    )
