"""What the invariances do to gradients: factors 1/|λ| and ±1, and directions without gradient."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from normlab.book.proofs.invariances import INVARIANCES, find_linear_norm, make_problem
from normlab.book.proofs.linear_norms import LinearNorm
from normlab.checks.report import CheckFailed

__all__ = [
    "Pullback",
    "check_all_gradient_rules",
    "check_flat_directions",
    "check_scaling",
    "pull_back",
]

ROUNDING = 1e-10  # relative; see UNCHANGED in normlab.book.proofs.invariances


@dataclass(frozen=True)
class Pullback:
    """One random upstream gradient, sent back through Norm(W x)."""

    weight: Tensor  #: (out, in), as it went in
    x: Tensor  #: (N, in, L), as it went in
    y: Tensor  #: (N, out, L)
    dy: Tensor  #: (N, out, L)
    dweight: Tensor  #: (out, in)
    dx: Tensor  #: (N, in, L)


def pull_back(
    layer: str | LinearNorm,
    *,
    weight_scale: float = 1.0,
    data_scale: float = 1.0,
    eps: float = 0.0,
    seed: int = 0,
) -> Pullback:
    """Send a random upstream gradient back through Norm(λ W · x) or Norm(W · λ x).

    Weights, data and upstream gradient depend on the seed only, so that calls with different
    scales can be compared.

    Args:
        layer: a key of LINEAR_NORMS, or a linear norm of your own.
        weight_scale: λ of the weights.
        data_scale: λ of the data.
        eps: of the norm.
        seed: of all draws.
    """
    norm = find_linear_norm(layer)
    problem = make_problem(seed=seed, positions=norm.positions)
    weight = (weight_scale * problem.weight).requires_grad_()
    x = (data_scale * problem.x).requires_grad_()
    y = norm(weight, x, eps=eps)
    generator = torch.Generator().manual_seed(seed + 2000)
    dy = torch.randn(y.shape, generator=generator, dtype=y.dtype)
    dweight, dx = torch.autograd.grad(y, (weight, x), dy)
    return Pullback(weight.detach(), x.detach(), y.detach(), dy, dweight, dx)


def _relative_error(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).norm() / expected.norm())


def _require(error: float, rule: str) -> float:
    if not error < ROUNDING:
        raise CheckFailed(f"{rule} does not hold: relative error {error:.2g}")
    return error


def check_scaling(
    layer: str | LinearNorm,
    of: Literal["weight", "data"],
    scale: float,
    *,
    eps: float = 0.0,
    seed: int = 0,
) -> float:
    r"""Check how the two Jacobians of Norm(W x) change when W or x is multiplied by λ.

    .. math:: \frac{\partial N}{\partial W}\Big|_{\lambda W}
              = \frac1{|\lambda|} \frac{\partial N}{\partial W}\Big|_{W}, \qquad
              \frac{\partial N}{\partial x}\Big|_{\lambda W}
              = \operatorname{sign}(\lambda) \frac{\partial N}{\partial x}\Big|_{W}

    and the same with W and x exchanged.

    Args:
        layer: a key of LINEAR_NORMS, or a linear norm of your own.
        of: what is multiplied.
        scale: λ, of either sign.
        eps: of the norm; the rule needs 0.
        seed: of all draws.

    Returns:
        The larger of the two relative errors.

    Raises:
        CheckFailed: a rule does not hold.

    Source:
        ioffe2015batch, Section 3.3, for the weights and λ > 0.
    """
    base = pull_back(layer, eps=eps, seed=seed)
    if of == "weight":
        scaled = pull_back(layer, weight_scale=scale, eps=eps, seed=seed)
        own, other = (base.dweight, scaled.dweight), (base.dx, scaled.dx)
    else:
        scaled = pull_back(layer, data_scale=scale, eps=eps, seed=seed)
        own, other = (base.dx, scaled.dx), (base.dweight, scaled.dweight)
    sign = 1.0 if scale > 0 else -1.0
    return max(
        _require(_relative_error(own[1], own[0] / abs(scale)), f"1 / |λ| for scaled {of}"),
        _require(_relative_error(other[1], sign * other[0]), f"sign(λ) for scaled {of}"),
    )


def check_flat_directions(layer: str, *, eps: float = 0.0, seed: int = 0) -> dict[str, float]:
    """Check that the gradient has no part along the directions that change nothing.

    A smooth family of changes that leaves Norm(W x) alone moves W or x along a curve on which
    every loss is constant, so the gradient is orthogonal to the curve's direction.

    Args:
        layer: a key of INVARIANCES.
        eps: of the norm; the rules about scales need 0.
        seed: of all draws.

    Returns:
        For each invariance of the layer, the gradient's largest component along its direction,
        divided by the product of the two lengths.

    Raises:
        CheckFailed: a component is larger than rounding explains.
    """
    back = pull_back(layer, eps=eps, seed=seed)
    per_row = (back.weight * back.dweight).sum(1)
    per_case = (back.x * back.dx).sum((1, 2))
    components = {
        "weight_rescale": per_row.sum(),
        "weight_recenter": back.dweight.sum(0),
        "row_rescale": per_row,
        "data_rescale": per_case.sum(),
        "data_recenter": back.dx.sum((0, 2)),
        "case_rescale": per_case,
    }
    found = {}
    for name, holds in INVARIANCES[layer].items():
        if holds:
            of_weight = name in ("weight_rescale", "weight_recenter", "row_rescale")
            point, gradient = (back.weight, back.dweight) if of_weight else (back.x, back.dx)
            cosine = components[name].abs().max() / (point.norm() * gradient.norm())
            found[name] = _require(float(cosine), f"zero gradient along {name}")
    return found


def check_all_gradient_rules(
    scales: Iterable[float] = (1e-3, -0.1, -5.0, 1e4), *, seed: int = 0
) -> dict[str, list[float]]:
    """Check every rule that the table of invariances promises.

    Args:
        scales: λ, of both signs.
        seed: of all draws.

    Returns:
        Relative errors of the rules for scaled "weights", scaled "data" and "flat" directions.

    Raises:
        CheckFailed: a rule does not hold.
    """
    errors: dict[str, list[float]] = {"weights": [], "data": [], "flat": []}
    scales = tuple(scales)
    for layer, row in INVARIANCES.items():
        for scale in scales:
            if row["weight_rescale"]:
                errors["weights"].append(check_scaling(layer, "weight", scale, seed=seed))
            if row["data_rescale"]:
                errors["data"].append(check_scaling(layer, "data", scale, seed=seed))
        errors["flat"] += check_flat_directions(layer, seed=seed).values()
    return errors
