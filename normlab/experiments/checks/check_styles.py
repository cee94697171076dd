"""Which usual ways of checking a norm notice which wrong LayerNorm, and at which size?"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm

from normlab.checks import LAYER_NORM_MUTANTS, error_budget, max_error
from normlab.experiments.settings import Count, Index, Positive
from normlab.layers import layer_norm

__all__ = ["STYLES", "Config", "Outcome", "Result", "run"]

Layer = Callable[..., Tensor]


@dataclass(frozen=True)
class Config:
    """Wrong LayerNorms under eleven ways of checking.

    Attributes:
        seeds: of the inputs; a check notices a mistake if it does for every seed.
        sizes: numbers of features, D.
        rows: of an input.
        tolerance: of the comparisons of gradients, absolute, and of small inputs.
        small: standard deviation of the small input.
        shift: added to the shifted input.
    """

    seeds: tuple[Index, ...] = (0, 1, 2)
    sizes: tuple[Count, ...] = (4, 64, 256)
    rows: Count = 24
    tolerance: Positive = 1e-4
    small: float = 3e-3
    shift: float = 1e4


@dataclass(frozen=True)
class Outcome:
    """One wrong layer at one size.

    Attributes:
        name: of the mutant.
        size: number of features.
        noticed: for each check the number of seeds for which it rejects the layer.
    """

    name: str
    size: int
    noticed: dict[str, int]


@dataclass(frozen=True)
class Result:
    """Every mutant at every size.

    Attributes:
        outcomes: one for each mutant and size.
        false_alarms: checks that reject torch's layer or the package's for any seed and size.
        seeds: how many there were.
    """

    outcomes: tuple[Outcome, ...]
    false_alarms: tuple[str, ...]
    seeds: int

    def caught(self, style: str, size: int) -> list[str]:
        """Mutants that a check rejects for every seed."""
        return [o.name for o in self.outcomes if o.size == size and o.noticed[style] == self.seeds]

    def best(self, count: int, size: int) -> tuple[int, list[tuple[str, ...]]]:
        """The largest number of mutants that so many checks reject together, and all such sets."""
        sets = list(itertools.combinations(STYLES, count))
        found = [len({m for style in s for m in self.caught(style, size)}) for s in sets]
        return max(found), [s for s, n in zip(sets, found, strict=True) if n == max(found)]


def _values(layer: Layer, x: Tensor) -> float:
    return max_error(layer(x, x.shape[-1:]), torch_layer_norm(x, x.shape[-1:]))


def _gradient(layer: Layer, x: Tensor, dy: Tensor, *parameters: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    layer(leaf, x.shape[-1:], *parameters).backward(dy)
    assert leaf.grad is not None  # a leaf that was used has one
    return leaf.grad


def _gradients_differ(layer: Layer, c: Config, x: Tensor, dy: Tensor, *parameters: Tensor) -> bool:
    ours, theirs = (_gradient(f, x, dy, *parameters) for f in (layer, torch_layer_norm))
    return not max_error(ours, theirs) <= c.tolerance


def _shape(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    return layer(x, x.shape[-1:]).shape != x.shape


def _moments(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    y = layer(x, x.shape[-1:]).double()
    mean = y.mean(-1, keepdim=True)
    std = (y - mean).square().mean(-1).sqrt()
    return bool(mean.abs().max() > 0.1 or (std - 1).abs().max() > 0.1)


def _within(tolerance: float) -> Callable[..., bool]:
    return lambda layer, c, x, other: not _values(layer, x) <= tolerance


def _gradient_of_sum(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    return _gradients_differ(layer, c, x, torch.ones_like(x))


def _gradcheck(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    leaf, weight = x[:1].double().requires_grad_(), other[0].double()
    return not torch.autograd.gradcheck(
        lambda t: layer(t, t.shape[-1:], weight), leaf, raise_exception=False
    )


def _gradient_of_weighted_sum(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    return _gradients_differ(layer, c, x, torch.ones_like(x), other[0], other[1])


def _random_gradient(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    weight, bias, dy = other[0], other[1], other[2:]
    return _gradients_differ(layer, c, x, dy, weight, bias)


def _small_input(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    return not _values(layer, c.small * x) <= c.tolerance


def _shifted_input(layer: Layer, c: Config, x: Tensor, other: Tensor) -> bool:
    moved, size = x + c.shift, x.shape[-1:]
    exact = torch_layer_norm(moved.double(), size)
    theirs = max_error(torch_layer_norm(moved, size), exact)
    error = max_error(layer(moved, size), exact)
    return not error <= error_budget(exact, x.dtype, theirs)


STYLES: dict[str, Callable[[Layer, Config, Tensor, Tensor], bool]] = {
    "shape": _shape,
    "mean 0, std 1": _moments,
    "values, 0.1": _within(0.1),
    "values, 0.01": _within(0.01),
    "values, 0.0001": _within(0.0001),
    "gradient of sum": _gradient_of_sum,
    "gradcheck": _gradcheck,
    "sum, random weight": _gradient_of_weighted_sum,
    "random gradient": _random_gradient,
    "small input": _small_input,
    "shifted input": _shifted_input,
}


def _noticed(layer: Layer, config: Config, size: int) -> dict[str, int]:
    counts = dict.fromkeys(STYLES, 0)
    for seed in config.seeds:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(config.rows, size, generator=generator)
        other = torch.randn(config.rows + 2, size, generator=generator)
        for style, notices in STYLES.items():
            counts[style] += notices(layer, config, x, other)
    return counts


def run(config: Config) -> Result:
    """Put every mutant, torch's layer and the package's through every check, at every size."""
    outcomes, alarms = [], set()
    for size in config.sizes:
        for right in (torch_layer_norm, layer_norm):
            alarms |= {style for style, n in _noticed(right, config, size).items() if n}
        for name, mutant in LAYER_NORM_MUTANTS.items():
            outcomes.append(Outcome(name, size, _noticed(mutant, config, size)))
    return Result(
        tuple(outcomes), tuple(style for style in STYLES if style in alarms), len(config.seeds)
    )
