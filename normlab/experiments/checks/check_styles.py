"""Which usual ways of checking a norm notice which wrong LayerNorm, and at which size?"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm

from normlab.checks import LAYER_NORM_MUTANTS, error_budget, max_error
from normlab.experiments.former_sweep import Sweep, grid
from normlab.experiments.results import Result
from normlab.experiments.settings import Count, Index, Positive
from normlab.layers import layer_norm

Layer = Callable[..., Tensor]
RIGHT: dict[str, Layer] = {"torch": torch_layer_norm, "normlab": layer_norm}


@dataclass(frozen=True)
class Config:
    """Wrong LayerNorms under eleven ways of checking."""

    #: of the inputs; a check notices a mistake if it does for every seed
    seeds: tuple[Index, ...] = (0, 1, 2)
    sizes: tuple[Count, ...] = (4, 64, 256)  #: numbers of features, D
    rows: Count = 24  #: of an input
    tolerance: Positive = 1e-4  #: of the comparisons of gradients, absolute, and of small inputs
    small: float = 3e-3  #: standard deviation of the small input
    shift: float = 1e4  #: added to the shifted input


Check = Callable[[Layer, Config, Tensor, Tensor], bool]


def _values(layer: Layer, x: Tensor) -> float:
    return max_error(layer(x, x.shape[-1:]), torch_layer_norm(x, x.shape[-1:]))


def _gradients_differ(layer: Layer, c: Config, x: Tensor, dy: Tensor, *parameters: Tensor) -> bool:
    leaf, both = x.clone().requires_grad_(), (layer, RIGHT["torch"])
    outputs = (f(leaf, x.shape[-1:], *parameters) for f in both)
    ours, theirs = (torch.autograd.grad(y, leaf, dy)[0] for y in outputs)
    return not max_error(ours, theirs) <= c.tolerance


def _moments(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    y = layer(x, x.shape[-1:]).double()
    std, mean = torch.std_mean(y, -1, correction=0)
    return bool(mean.abs().max() > 0.1 or (std - 1).abs().max() > 0.1)


def _within(tolerance: float) -> Check:
    return lambda layer, c, x, other: not _values(layer, x) <= tolerance


def _gradcheck(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    leaf, weight = x[:1].double().requires_grad_(), other[0].double()
    return not torch.autograd.gradcheck(
        lambda t: layer(t, t.shape[-1:], weight), leaf, raise_exception=False
    )


def _shifted_input(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    moved, size = x + c.shift, x.shape[-1:]
    exact = torch_layer_norm(moved.double(), size)
    theirs = max_error(torch_layer_norm(moved, size), exact)
    error = max_error(layer(moved, size), exact)
    return not error <= error_budget(exact, x.dtype, theirs)


# Each is called with the layer, the settings, an input and other random rows: weight, bias, dy.
STYLES: dict[str, Check] = {
    "shape": lambda f, c, x, other: f(x, x.shape[-1:]).shape != x.shape,
    "mean 0, std 1": _moments,
    "values, 0.1": _within(0.1),
    "values, 0.01": _within(0.01),
    "values, 0.0001": _within(0.0001),
    "gradient of sum": lambda f, c, x, other: _gradients_differ(f, c, x, torch.ones_like(x)),
    "gradcheck": _gradcheck,
    "sum, random weight": lambda f, c, x, other: _gradients_differ(
        f, c, x, torch.ones_like(x), *other[:2]
    ),
    "random gradient": lambda f, c, x, other: _gradients_differ(f, c, x, other[2:], *other[:2]),
    "small input": lambda f, c, x, other: not _values(f, c.small * x) <= c.tolerance,
    "shifted input": _shifted_input,
}


def run_one(config: Config, layer: str, size: int, seed: int) -> dict[str, tuple[str, ...]]:
    """Put one layer, a mutant by its name or one of :data:`RIGHT`, through every check.

    Measures:
        noticed_by: names of the checks that reject it.
    """
    function = (RIGHT | LAYER_NORM_MUTANTS)[layer]
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(config.rows, size, generator=generator)
    other = torch.randn(config.rows + 2, size, generator=generator)
    found = (name for name, notices in STYLES.items() if notices(function, config, x, other))
    return {"noticed_by": tuple(found)}


def _points(config: Config) -> list[dict[str, Any]]:
    return grid(size=config.sizes, layer=(*RIGHT, *LAYER_NORM_MUTANTS), seed=config.seeds)


run = Sweep(run_one, _points)


def caught(result: Result, style: str, size: int) -> list[str]:
    """Mutants that a check rejects for every seed."""
    return [
        name
        for name in LAYER_NORM_MUTANTS
        if all(style in found for found in result.values("noticed_by", layer=name, size=size))
    ]


def best(result: Result, count: int, size: int) -> tuple[int, list[tuple[str, ...]]]:
    """The largest number of mutants that so many checks reject together, and all such sets."""
    by_style = {style: caught(result, style, size) for style in STYLES}
    sets = list(itertools.combinations(STYLES, count))
    found = [len({name for style in s for name in by_style[style]}) for s in sets]
    return max(found), [s for s, n in zip(sets, found, strict=True) if n == max(found)]


def false_alarms(result: Result) -> set[str]:
    """Checks that reject a right layer for any seed and size."""
    return {s for name in RIGHT for found in result.values("noticed_by", layer=name) for s in found}
