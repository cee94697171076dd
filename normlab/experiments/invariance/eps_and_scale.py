"""How far does eps break the invariance to the scale of the weights, and what bounds it?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from normlab.checks.invariances import find_linear_norm, make_problem
from normlab.experiments.settings import Count, Index, NotNegative, check_settings
from normlab.norms import NORMS

__all__ = ["Config", "Outcome", "Result", "eps_deviation", "eps_deviation_bound", "run"]

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
    """Bound min(1, r / 2) of :func:`eps_deviation`.

    Args:
        ratio: r, as in :func:`eps_deviation`.
    """
    return min(1.0, ratio / 2)


@dataclass(frozen=True)
class Config:
    """Norm(λ W x) with eps against Norm(W x) without, in float64.

    Attributes:
        norms: "batch_norm", "layer_norm" or "rms_norm".
        exponents: λ is 10 to these.
        eps: of the norm.
        seeds: of weights and data, both standard normal.
        samples: N.
        size: inputs of the linear map; it has one output more.
    """

    norms: tuple[str, ...] = ("batch_norm", "layer_norm", "rms_norm")
    exponents: tuple[float, ...] = tuple(-4 + 0.5 * i for i in range(17))
    eps: tuple[NotNegative, ...] = (0.0, 1e-12, 1e-5)
    seeds: tuple[Index, ...] = (0, 1, 2)
    samples: Count = 32
    size: Count = 15

    def __post_init__(self) -> None:
        check_settings(self)
        for norm in self.norms:
            if norm not in STATISTICS_AXES:
                raise ValueError(
                    f"norms: got {norm!r}; expected some of {', '.join(STATISTICS_AXES)}"
                )
        if any(e < 0 for e in self.eps):
            raise ValueError(f"eps: got {self.eps}; expected none below 0, drop the negative ones")
        if self.samples < 2 or self.size < 2:
            raise ValueError(
                f"samples, size: got {self.samples}, {self.size}; expected at least 2 each, "
                "or a variance is 0"
            )


@dataclass(frozen=True)
class Outcome:
    """One norm, eps and seed, over all scales.

    Attributes:
        norm: name.
        eps: of the norm.
        seed: of weights and data.
        measured: largest entry of |Norm(λ W x) - Norm₀(W x)| over the largest |Norm₀(W x)|.
        ratios: eps / (λ² v) for the smallest statistic v of the batch.
        bounds: of `measured`, from `ratios`.
    """

    norm: str
    eps: float
    seed: int
    measured: tuple[float, ...]
    ratios: tuple[float, ...]
    bounds: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    """All outcomes, and the scales λ."""

    scales: tuple[float, ...]
    outcomes: tuple[Outcome, ...]

    def of(self, norm: str, eps: float) -> list[Outcome]:
        """One outcome for each seed."""
        return [o for o in self.outcomes if (o.norm, o.eps) == (norm, eps)]

    def largest_bounds(self, eps: float) -> list[float]:
        """For each scale the largest bound over norms and seeds."""
        bounds = [o.bounds for o in self.outcomes if o.eps == eps]
        return [max(column) for column in zip(*bounds, strict=True)]


def _run_one(config: Config, norm: str, eps: float, seed: int) -> Outcome:
    problem = make_problem(seed=seed, samples=config.samples, size=config.size)
    layer = find_linear_norm(norm)
    exact = layer(problem.weight, problem.x)
    a = torch.einsum("oi,nil->nol", problem.weight, problem.x)
    axes = STATISTICS_AXES[norm]
    center = a.mean(axes, keepdim=True) if NORMS[norm].centered else 0.0
    smallest = float((a - center).square().mean(axes).min())
    measured, ratios = [], []
    for exponent in config.exponents:
        scale = 10.0**exponent
        y = layer(scale * problem.weight, problem.x, eps=eps)
        measured.append(float((y - exact).abs().max() / exact.abs().max()))
        ratios.append(eps / (scale**2 * smallest))
    bounds = tuple(eps_deviation_bound(r) for r in ratios)
    return Outcome(norm, eps, seed, tuple(measured), tuple(ratios), bounds)


def run(config: Config) -> Result:
    """Measure every norm with every eps, seed and scale."""
    return Result(
        tuple(10.0**e for e in config.exponents),
        tuple(
            _run_one(config, norm, eps, seed)
            for norm in config.norms
            for eps in config.eps
            for seed in config.seeds
        ),
    )
