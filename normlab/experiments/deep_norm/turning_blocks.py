"""A stack of blocks so simple that the bound on one step can be proved, and measured, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from normlab.experiments.former_sweep import Sweep
from normlab.experiments.settings import Count, Index, Positive
from normlab.layers import RMSNorm
from normlab.residual import DeepNorm

Group = Literal["post_norm", "deep_norm", "alpha only", "beta only"]
Step = Literal["gradient", "sign"]


class TurningBranch(nn.Module):
    """Turns every pair of features by a quarter and multiplies by v w, which start at beta.

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
    """Stack the package's own :class:`~normlab.residual.DeepNorm` around turning branches."""
    blocks = []
    for _ in range(sublayers):
        norm = RMSNorm(features, eps=0.0, dtype=torch.float64)
        blocks.append(DeepNorm(TurningBranch(beta), norm, alpha=alpha))
    return nn.Sequential(*blocks)


@dataclass(frozen=True)
class Config:
    """One step against the gradient whose upstream part is as unfavorable as it can be."""

    #: which constants; "post_norm" has alpha and beta 1
    groups: tuple[Group, ...] = get_args(Group)
    depths: tuple[Count, ...] = (10, 30, 100)  #: layers N, of two sublayers each
    #: "gradient" (SGD) or "sign" (the first step of Adam) of v and w of every branch; the norms
    #: stay as they are
    steps: tuple[Step, ...] = get_args(Step)
    lr: Positive = 1e-5  #: rate; small, so that the step is the linear term
    features: Count = 4  #: D, even
    seed: Index = 0  #: of the input

    def __post_init__(self) -> None:
        if self.features < 2 or self.features % 2:
            raise ValueError(f"features: got {self.features}; expected an even number")


def run_one(config: Config, group: Group, depth: int, step: Step) -> dict[str, float]:
    """Take one step.

    Measures:
        change: of the output, relative to its norm, divided by the rate.
        bound: the same by the theorem.
    """
    alpha = (2 * depth) ** 0.25 if group in ("deep_norm", "alpha only") else 1.0
    beta = (8 * depth) ** -0.25 if group in ("deep_norm", "beta only") else 1.0
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
    return {"change": change, "bound": _bound(config, alpha, beta, depth, step)}


def _bound(config: Config, alpha: float, beta: float, depth: int, step: Step) -> float:
    length = 2**0.5 * beta  # of (v, w)
    moved = length / alpha if step == "gradient" else 2**0.5  # divided by the rate
    return 2 * depth * (length + config.lr * moved) / alpha * moved


run = Sweep(run_one, group="groups", step="steps", depth="depths")
