"""How far does eps break the invariance to the scale of the weights, and what bounds it?"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt

from normlab.book.experiments.sweep import experiment
from normlab.book.proofs.invariances import find_linear_norm, make_problem
from normlab.norms import NORMS

Norm = Literal["batch_norm", "layer_norm", "rms_norm"]
STATISTICS_AXES = {"batch_norm": (0, 2), "layer_norm": (1,), "rms_norm": (1,)}
SCALES = tuple(10.0 ** (-4 + 0.5 * i) for i in range(17))  # the factors λ of the weights


def eps_deviation(ratio: float) -> float:
    r"""Relative deviation of a norm with `eps` from the norm without.

    .. math:: 1 - \frac{1}{\sqrt{1 + r}}, \qquad r = \frac{\epsilon}{\lambda^2 v}

    Args:
        ratio: `eps` over the statistic under the root; v is the variance or mean square of the
            summed inputs and λ the factor of the weights.

    Example:
        >>> eps_deviation(3.0)
        0.5
    """
    root: float = (1 + ratio) ** 0.5
    return ratio / (root * (root + 1))  # 1 - 1 / root without cancellation


def eps_deviation_bound(ratio: float) -> float:
    """Bound min(1, r / 2) of :func:`eps_deviation`."""
    return min(1.0, ratio / 2)


@experiment(norm=("batch_norm", "layer_norm", "rms_norm"), eps=(0.0, 1e-12, 1e-5), seed=range(3))
def eps_and_scale(
    norm: Norm,
    eps: NonNegativeFloat,
    seed: NonNegativeInt,
    *,
    samples: Annotated[int, Field(ge=2)] = 32,
) -> dict[str, Any]:
    """Compare Norm(λ W x) with eps to Norm₀(W x) without, in float64; x has 15 features, W x 16.

    Args:
        seed: of weights and data, both standard normal.

    Returns:
        measured: for each of the `SCALES` the largest entry of |Norm(λ W x) - Norm₀(W x)| over
            the largest |Norm₀(W x)|.
        ratios: eps / (λ² v) for the smallest statistic v of the batch.
        bounds: of `measured`, from `ratios`.
    """
    problem = make_problem(seed=seed, samples=samples, size=15)
    layer = find_linear_norm(norm)
    exact = layer(problem.weight, problem.x)
    a = torch.einsum("oi,nil->nol", problem.weight, problem.x)
    axes = STATISTICS_AXES[norm]
    center = a.mean(axes, keepdim=True) if NORMS[norm].centered else 0.0
    smallest = float((a - center).square().mean(axes).min())
    changed = [layer(scale * problem.weight, problem.x, eps=eps) for scale in SCALES]
    ratios = [eps / (scale**2 * smallest) for scale in SCALES]
    return {
        "measured": [float((y - exact).abs().max() / exact.abs().max()) for y in changed],
        "ratios": ratios,
        "bounds": list(map(eps_deviation_bound, ratios)),
    }
