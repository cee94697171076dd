"""Which usual ways of checking a norm notice which wrong LayerNorm, and at which size?"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pandas as pd
import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm

from normlab.book.experiments.sweep import Seed, experiment
from normlab.book.experiments.tables import where
from normlab.checks import LAYER_NORM_MUTANTS, error_budget, max_error
from normlab.layers import layer_norm

Layer = Callable[..., Tensor]
Check = Callable[[Layer, Tensor, Tensor], bool]
RIGHT: dict[str, Layer] = {"torch": torch_layer_norm, "normlab": layer_norm}
TOLERANCE = 1e-4  # of the comparisons of gradients, absolute, and of small inputs
SMALL = 3e-3  # standard deviation of the small input
SHIFT = 1e4  # added to the shifted input


def _values(layer: Layer, x: Tensor) -> float:
    return max_error(layer(x, x.shape[-1:]), torch_layer_norm(x, x.shape[-1:]))


def _assert_close(layer: Layer, x: Tensor, other: Tensor) -> bool:
    try:
        torch.testing.assert_close(layer(x, x.shape[-1:]), torch_layer_norm(x, x.shape[-1:]))
    except AssertionError:
        return True
    return False


def _gradients_differ(layer: Layer, x: Tensor, dy: Tensor, *parameters: Tensor) -> bool:
    leaf, both = x.clone().requires_grad_(), (layer, RIGHT["torch"])
    outputs = (f(leaf, x.shape[-1:], *parameters) for f in both)
    ours, theirs = (torch.autograd.grad(y, leaf, dy)[0] for y in outputs)
    return not max_error(ours, theirs) <= TOLERANCE


def _moments(layer: Layer, x: Tensor, other: Tensor) -> bool:
    y = layer(x, x.shape[-1:]).double()
    std, mean = torch.std_mean(y, -1, correction=0)
    return bool(mean.abs().max() > 0.1 or (std - 1).abs().max() > 0.1)


def _within(tolerance: float) -> Check:
    return lambda layer, x, other: not _values(layer, x) <= tolerance


def _gradcheck(layer: Layer, x: Tensor, other: Tensor) -> bool:
    leaf, weight = x[:1].double().requires_grad_(), other[0].double()
    return not torch.autograd.gradcheck(
        lambda t: layer(t, t.shape[-1:], weight), leaf, raise_exception=False
    )


def _shifted_input(layer: Layer, x: Tensor, other: Tensor) -> bool:
    moved, size = x + SHIFT, x.shape[-1:]
    exact = torch_layer_norm(moved.double(), size)
    theirs = max_error(torch_layer_norm(moved, size), exact)
    error = max_error(layer(moved, size), exact)
    return not error <= error_budget(exact, x.dtype, theirs)


# Each is called with the layer, an input and other random rows: weight, bias, dy.
STYLES: dict[str, Check] = {
    "shape": lambda f, x, other: f(x, x.shape[-1:]).shape != x.shape,
    "mean 0, std 1": _moments,
    "values, 0.1": _within(0.1),
    "values, 0.01": _within(0.01),
    "values, 0.0001": _within(0.0001),
    "assert_close": _assert_close,
    "gradient of sum": lambda f, x, other: _gradients_differ(f, x, torch.ones_like(x)),
    "gradcheck": _gradcheck,
    "sum, random weight": lambda f, x, other: _gradients_differ(
        f, x, torch.ones_like(x), *other[:2]
    ),
    "random gradient": lambda f, x, other: _gradients_differ(f, x, other[2:], *other[:2]),
    "small input": lambda f, x, other: not _values(f, SMALL * x) <= TOLERANCE,
    "shifted input": _shifted_input,
}


@experiment(size=(4, 64, 256), layer=(*RIGHT, *LAYER_NORM_MUTANTS), seed=range(3))
def check_styles(size: PositiveInt, layer: str, seed: Seed) -> dict[str, list[str]]:
    """Put one LayerNorm through twelve ways of checking.

    Args:
        layer: name of a mutant, or "torch" or "normlab", which are right.

    Returns:
        noticed_by: names of the checks that reject it.
    """
    function = (RIGHT | LAYER_NORM_MUTANTS)[layer]
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(24, size, generator=generator)
    other = torch.randn(24 + 2, size, generator=generator)
    return {"noticed_by": [s for s, notices in STYLES.items() if notices(function, x, other)]}


def caught(table: pd.DataFrame, style: str, size: int) -> list[str]:
    """Mutants that a check rejects for every seed."""
    return [
        name
        for name in LAYER_NORM_MUTANTS
        if all(style in found for found in where(table, layer=name, size=size).noticed_by)
    ]


def best(table: pd.DataFrame, count: int, size: int) -> tuple[int, list[tuple[str, ...]]]:
    """The largest number of mutants that so many checks reject together, and all such sets."""
    by_style = {style: caught(table, style, size) for style in STYLES}
    sets = list(itertools.combinations(STYLES, count))
    found = [len({name for style in s for name in by_style[style]}) for s in sets]
    return max(found), [s for s, n in zip(sets, found, strict=True) if n == max(found)]


def false_alarms(table: pd.DataFrame) -> set[str]:
    """Checks that reject a right layer for any seed and size."""
    return {style for found in table[table.layer.isin(RIGHT)].noticed_by for style in found}
