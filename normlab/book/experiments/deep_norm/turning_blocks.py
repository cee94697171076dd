"""A stack of blocks so simple that the bound on one step can be proved, and measured, exactly."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from normlab.book.experiments.sweep import experiment
from normlab.layers import RMSNorm
from normlab.residual import DeepNorm

Group = Literal["post_norm", "deep_norm", "alpha only", "beta only"]
LR = 1e-5  # small, so that the step is the linear term


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


def make_stack(sublayers: int, *, alpha: float, beta: float) -> nn.Sequential:
    """Stack the package's own :class:`~normlab.residual.DeepNorm` around turning branches."""
    blocks = []
    for _ in range(sublayers):
        norm = RMSNorm(4, eps=0.0, dtype=torch.float64)
        blocks.append(DeepNorm(TurningBranch(beta), norm, alpha=alpha))
    return nn.Sequential(*blocks)


@experiment(group=get_args(Group), depth=(10, 30, 100))
def turning_blocks(group: Group, depth: PositiveInt) -> dict[str, float]:
    """Take one step against the gradient whose upstream part is as unfavorable as it can be.

    The step is taken on v and w of every branch; the norms stay as they are.

    Args:
        group: which constants; "post_norm" has alpha and beta 1.
        depth: layers N, of two sublayers each.

    Returns:
        change: of the output, relative to its norm, divided by the rate.
        bound: the same by the theorem.
    """
    alpha = (2 * depth) ** 0.25 if group in ("deep_norm", "alpha only") else 1.0
    beta = (8 * depth) ** -0.25 if group in ("deep_norm", "beta only") else 1.0
    stack = make_stack(2 * depth, alpha=alpha, beta=beta)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 4, generator=generator, dtype=torch.float64)
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
            p.add_(LR * p.grad)
        change = ((stack(x) - before).norm() / size).item() / LR
    return {"change": change, "bound": _bound(alpha, beta, depth)}


def _bound(alpha: float, beta: float, depth: int) -> float:
    length = 2**0.5 * beta  # of (v, w)
    moved = length / alpha  # divided by the rate
    return 2 * depth * (length + LR * moved) / alpha * moved
