"""How far does eps break the invariance to the scale of the weights, and what bounds it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from normlab.checks.invariances import find_linear_norm, make_problem
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.settings import Index, NotNegative, Several
from normlab.norms import NORMS

Norm = Literal["batch_norm", "layer_norm", "rms_norm"]
STATISTICS_AXES = {"batch_norm": (0, 2), "layer_norm": (1,), "rms_norm": (1,)}


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


@dataclass(frozen=True)
class Config:
    """Norm(λ W x) with eps against Norm(W x) without, in float64."""

    #: of the linear map's outputs
    norms: tuple[Norm, ...] = ("batch_norm", "layer_norm", "rms_norm")
    exponents: tuple[float, ...] = tuple(-4 + 0.5 * i for i in range(17))  #: λ is 10 to these
    eps: tuple[NotNegative, ...] = (0.0, 1e-12, 1e-5)  #: of the norm
    seeds: tuple[Index, ...] = (0, 1, 2)  #: of weights and data, both standard normal
    samples: Several = 32  #: N
    size: Several = 15  #: inputs of the linear map; it has one output more

    @property
    def scales(self) -> list[float]:
        """The factors λ."""
        return [10.0**exponent for exponent in self.exponents]


def run_one(config: Config, norm: Norm, eps: float, seed: int) -> dict[str, Any]:
    """Rescale the weights of one linear map.

    Measures:
        measured: for each scale the largest entry of |Norm(λ W x) - Norm₀(W x)| over the
            largest |Norm₀(W x)|.
        ratios: eps / (λ² v) for the smallest statistic v of the batch.
        bounds: of `measured`, from `ratios`.
    """
    problem = make_problem(seed=seed, samples=config.samples, size=config.size)
    layer = find_linear_norm(norm)
    exact = layer(problem.weight, problem.x)
    a = torch.einsum("oi,nil->nol", problem.weight, problem.x)
    axes = STATISTICS_AXES[norm]
    center = a.mean(axes, keepdim=True) if NORMS[norm].centered else 0.0
    smallest = float((a - center).square().mean(axes).min())
    changed = [layer(scale * problem.weight, problem.x, eps=eps) for scale in config.scales]
    ratios = tuple(eps / (scale**2 * smallest) for scale in config.scales)
    return {
        "measured": tuple(float((y - exact).abs().max() / exact.abs().max()) for y in changed),
        "ratios": ratios,
        "bounds": tuple(map(eps_deviation_bound, ratios)),
    }


run = Sweep(run_one, norm="norms", eps="eps", seed="seeds")
