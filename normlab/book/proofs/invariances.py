"""Which changes of W or x leave Norm(W x) alone, and which do not: measured, not believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.book.proofs.linear_norms import LINEAR_NORMS, LinearNorm
from normlab.checks.report import CheckFailed
from normlab.norms import NORMS

__all__ = [
    "INVARIANCES",
    "TRANSFORMATIONS",
    "Problem",
    "Transformation",
    "find_linear_norm",
    "is_invariant",
    "make_problem",
    "measure_change",
    "measure_table",
]

# Rounding of float64 gives changes of about terms * 1e-16 * (size of the summed inputs over
# their spread), here below 1e-13; a real dependence moves outputs of size one by tenths.
# Between the two limits nothing is decided.
UNCHANGED, CHANGED = 1e-10, 1e-3
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Problem:
    """Weights and data.

    Attributes:
        weight: (out, in).
        x: (N, in, L).
        bias: (out,), added before the norm, or None.
    """

    weight: Tensor
    x: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True)
class Transformation:
    """A change of weights or data.

    Attributes:
        formula: for readers.
        apply: (weight, x, scale, shift) -> (weight, x), with a number `scale` and a vector
            `shift` (in,); each transformation uses one of them.
    """

    formula: str
    apply: Callable[[Tensor, Tensor, float, Tensor], tuple[Tensor, Tensor]]


def _first_only(tensor: Tensor, scale: float) -> Tensor:
    factors = torch.ones_like(tensor)
    factors[0] = scale
    return tensor * factors


TRANSFORMATIONS: dict[str, Transformation] = {
    "weight_rescale": Transformation("λ W", lambda w, x, scale, shift: (scale * w, x)),
    "weight_recenter": Transformation("W + 1 cᵀ", lambda w, x, scale, shift: (w + shift, x)),
    "row_rescale": Transformation(
        "λ W for one row", lambda w, x, scale, shift: (_first_only(w, scale), x)
    ),
    "data_rescale": Transformation("λ x", lambda w, x, scale, shift: (w, scale * x)),
    "data_recenter": Transformation("x + c", lambda w, x, scale, shift: (w, x + shift[:, None])),
    "case_rescale": Transformation(
        "λ x for one case", lambda w, x, scale, shift: (w, _first_only(x, scale))
    ),
}


# Of the variants without a record; those of the norms stand in their records.
_VARIANTS: dict[str, tuple[str, ...]] = {
    "weight_norm": ("weight_rescale", "row_rescale"),
    "prms_norm": NORMS["rms_norm"].invariances,
    "group_norm_positions": ("weight_rescale", "data_rescale", "case_rescale"),
    "batch_norm_frozen": (),
}

# eps = 0, λ > 0, no bias before the norm. ba2016layer, Table 1, for the first three rows.
INVARIANCES: dict[str, dict[str, bool]] = {
    name: {
        change: change in (NORMS[name].invariances if name in NORMS else _VARIANTS[name])
        for change in TRANSFORMATIONS
    }
    for name in LINEAR_NORMS
    if name not in NORMS or NORMS[name].torch
}


def make_problem(
    *, seed: int, positions: int = 1, bias: bool = False, samples: int = 7, size: int = 5
) -> Problem:
    """Draw standard normal weights (size + 1, size) and data (N, size, L) in float64."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weight, x = normal(size + 1, size), normal(samples, size, positions)
    return Problem(weight, x, normal(size + 1) if bias else None)


def find_linear_norm(layer: str | LinearNorm) -> LinearNorm:
    """Look a linear norm up by its name; one that is given as such is handed back.

    Raises:
        ValueError: the name is unknown.
    """
    if isinstance(layer, LinearNorm):
        return layer
    if layer not in LINEAR_NORMS:
        raise ValueError(f"layer: got {layer!r}; expected one of {', '.join(LINEAR_NORMS)}")
    return LINEAR_NORMS[layer]


def measure_change(
    layer: str | LinearNorm,
    transformation: str,
    *,
    scale: float = 2.5,
    eps: float = 0.0,
    bias: bool = False,
    weight_scale: float = 1.0,
    seed: int = 0,
) -> float:
    """Largest change of an entry of Norm(W x + b) under a transformation, in float64.

    Args:
        layer: a key of LINEAR_NORMS, or a linear norm of your own.
        transformation: a key of TRANSFORMATIONS.
        scale: λ; not 0 and not 1.
        eps: of the norm.
        bias: add a bias before the norm.
        weight_scale: standard deviation of the entries of W.
        seed: of weights, data and shift.

    Raises:
        ValueError: an unknown name, or a scale that says nothing.

    Example:
        >>> measure_change("batch_norm", "row_rescale") < 1e-12
        True
        >>> measure_change("layer_norm", "row_rescale") > 0.1
        True
    """
    norm = find_linear_norm(layer)
    if transformation not in TRANSFORMATIONS:
        raise ValueError(
            f"transformation: got {transformation!r}; expected one of {', '.join(TRANSFORMATIONS)}"
        )
    if scale in (0.0, 1.0):
        raise ValueError(f"scale: got {scale}; 0 destroys W and 1 changes nothing, take another")
    problem = make_problem(seed=seed, positions=norm.positions, bias=bias)
    weight = weight_scale * problem.weight
    generator = torch.Generator().manual_seed(seed + 1000)
    shift = torch.randn(weight.shape[1], generator=generator, dtype=torch.float64)
    changed = TRANSFORMATIONS[transformation].apply(weight, problem.x, scale, shift)
    before = norm(weight, problem.x, problem.bias, eps=eps)
    after = norm(*changed, problem.bias, eps=eps)
    return float((after - before).abs().max())


def is_invariant(
    layer: str | LinearNorm,
    transformation: str,
    *,
    scale: float = 2.5,
    bias: bool = False,
    seeds: Iterable[int] = SEEDS,
) -> bool:
    """Whether Norm(W x + b) with eps = 0 stays the same for every seed.

    Raises:
        CheckFailed: the change is too large for rounding and too small for a dependence, or
            the seeds disagree.
    """
    changes = [
        measure_change(layer, transformation, scale=scale, bias=bias, seed=seed) for seed in seeds
    ]
    if changes and max(changes) < UNCHANGED:
        return True
    if changes and min(changes) > CHANGED:
        return False
    raise CheckFailed(
        f"{layer} under {transformation}: changes {', '.join(f'{c:.1e}' for c in changes)}; "
        f"expected all below {UNCHANGED:g} or all above {CHANGED:g}"
    )


def measure_table(
    layers: Iterable[str] = tuple(INVARIANCES),
    transformations: Iterable[str] = tuple(TRANSFORMATIONS),
    *,
    scale: float = 2.5,
    bias: bool = False,
) -> dict[str, dict[str, bool]]:
    """Measure which layer has which invariance.

    Source:
        ba2016layer, Table 1.

    Example:
        >>> measure_table(["layer_norm"], ["row_rescale", "case_rescale"])
        {'layer_norm': {'row_rescale': False, 'case_rescale': True}}
    """
    columns = tuple(transformations)
    return {
        layer: {name: is_invariant(layer, name, scale=scale, bias=bias) for name in columns}
        for layer in layers
    }
