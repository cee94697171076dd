"""A stack of blocks so simple that the bound on one step can be proved, and measured, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from normlab.experiments.settings import Count, Index, Positive, check_settings
from normlab.layers import RMSNorm
from normlab.residual import DeepNorm

__all__ = ["Config", "Outcome", "Result", "TurningBranch", "make_stack", "run", "run_one"]

Arm = Literal["post_norm", "deep_norm", "alpha only", "beta only"]
Step = Literal["gradient", "sign"]


class TurningBranch(nn.Module):
    """Turns every pair of features by a quarter and multiplies by v w.

    Args:
        beta: where v and w start.

    Shape:
        (N, D) to (N, D), D even.
    """

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.tensor(beta, dtype=torch.float64))
        self.w = nn.Parameter(torch.tensor(beta, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return v w J x with J (a, b) = (-b, a)."""
        pairs = x.unflatten(-1, (-1, 2))
        turned = torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)
        return self.v * self.w * turned


def make_stack(sublayers: int, *, alpha: float, beta: float, features: int = 4) -> nn.Sequential:
    """Stack the package's own :class:`~normlab.residual.DeepNorm` around turning branches.

    Args:
        sublayers: number of blocks.
        alpha: factor of the skips.
        beta: where v and w of every branch start.
        features: D, even.
    """
    return nn.Sequential(
        *(
            DeepNorm(
                TurningBranch(beta), RMSNorm(features, eps=0.0, dtype=torch.float64), alpha=alpha
            )
            for _ in range(sublayers)
        )
    )


@dataclass(frozen=True)
class Config:
    """One step against the gradient whose upstream part is as unfavorable as it can be.

    Attributes:
        arms: "post_norm" (alpha and beta 1), "deep_norm", "alpha only", "beta only".
        depths: layers N, of two sublayers each.
        steps: "gradient" (SGD) or "sign" (the first step of Adam) of v and w of every branch;
            the norms stay as they are.
        lr: rate; small, so that the step is the linear term.
        features: D, even.
        seed: of the input.
    """

    arms: tuple[Arm, ...] = get_args(Arm)
    depths: tuple[Count, ...] = (10, 30, 100)
    steps: tuple[Step, ...] = get_args(Step)
    lr: Positive = 1e-5
    features: Count = 4
    seed: Index = 0

    def __post_init__(self) -> None:
        check_settings(self)
        if self.features < 2 or self.features % 2:
            raise ValueError(f"features: got {self.features}; expected an even number")
        if not self.lr > 0:
            raise ValueError(f"lr: got {self.lr}; expected a positive number")


@dataclass(frozen=True)
class Outcome:
    """One step.

    Attributes:
        arm: which constants.
        depth: layers.
        step: "gradient" or "sign".
        change: of the output, relative to its norm, divided by the rate.
        bound: the same by the theorem.
    """

    arm: str
    depth: int
    step: str
    change: float
    bound: float


@dataclass(frozen=True)
class Result:
    """All outcomes."""

    outcomes: tuple[Outcome, ...]

    def of(self, arm: str, step: str) -> list[Outcome]:
        """One outcome for each depth."""
        return [o for o in self.outcomes if (o.arm, o.step) == (arm, step)]


def run_one(config: Config, arm: Arm, depth: int, step: Step) -> Outcome:
    """Take one step."""
    alpha = (2 * depth) ** 0.25 if arm in ("deep_norm", "alpha only") else 1.0
    beta = (8 * depth) ** -0.25 if arm in ("deep_norm", "beta only") else 1.0
    stack = make_stack(2 * depth, alpha=alpha, beta=beta, features=config.features)
    generator = torch.Generator().manual_seed(config.seed)
    x = torch.randn(1, config.features, generator=generator, dtype=torch.float64)
    x = x / x.square().mean().sqrt()
    before = stack(x)
    # in the units of the theorem both output and upstream gradient have norm 1; the least
    # favorable direction turns the output on
    size = before.detach().norm()
    upstream = TurningBranch(1.0)(before.detach() / size).detach()
    (before / size).backward(upstream)
    moved = [p for name, p in stack.named_parameters() if "norm" not in name]
    with torch.no_grad():
        for p in moved:
            assert p.grad is not None
            p.add_(config.lr * (p.grad.sign() if step == "sign" else p.grad))
        change = ((stack(x) - before).norm() / size).item() / config.lr
    return Outcome(arm, depth, step, change, _bound(config, alpha, beta, depth, step))


def _bound(config: Config, alpha: float, beta: float, depth: int, step: Step) -> float:
    length = 2**0.5 * beta  # of (v, w)
    moved = length / alpha if step == "gradient" else 2**0.5  # divided by the rate
    return 2 * depth * (length + config.lr * moved) / alpha * moved


def run(config: Config) -> Result:
    """Take every step of every arm at every depth."""
    return Result(
        tuple(
            run_one(config, arm, depth, step)
            for arm in config.arms
            for step in config.steps
            for depth in config.depths
        )
    )
