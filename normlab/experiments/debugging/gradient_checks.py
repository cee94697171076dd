"""Which gradient checks does a wrong layer norm pass?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import gradcheck

from normlab.checks import check_layer
from normlab.checks.mutants import find_mutant, mutants
from normlab.experiments.former_sweep import Sweep, grid
from normlab.experiments.settings import Count, Index, check_settings
from normlab.layers import layer_norm

Layer = Callable[..., Tensor]


@dataclass(frozen=True)
class Config:
    """Wrong layers of :func:`normlab.checks.mutants.mutants`, and the right one, in float64."""

    #: names of the wrong layers
    mistakes: tuple[str, ...] = ("bessel", "missing_projection_term", "missing_weight")
    rows: Count = 3  #: of the input
    features: Count = 5  #: of each row
    seed: Index = 0  #: of input, weight, bias and upstream gradient

    def __post_init__(self) -> None:
        check_settings(self)
        known = {mutant.name for mutant in mutants("layer_norm")}
        if unknown := set(self.mistakes) - known:
            raise ValueError(f"mistakes: got {sorted(unknown)}; expected some of {sorted(known)}")


def _fits(function: Callable[..., Tensor], *inputs: Tensor) -> bool:
    """Does the gradient of the function fit its values? (What `gradcheck` asks.)"""
    leaves = [value.clone().requires_grad_() for value in inputs]
    return bool(gradcheck(function, leaves, raise_exception=False))


def run_one(config: Config, mistake: str) -> dict[str, tuple[str, ...]]:
    """Put one layer through every check; the mistake "none" is the right one.

    Measures:
        passed: the checks that it passes, of these: the gradient by the input of the sum of all
            outputs; by weight and bias alone, for a random upstream gradient; of every output by
            the input, with a weight of 1; by input, weight and bias, with a random weight; and
            :func:`normlab.checks.check_layer`.
    """
    right = mistake == "none"
    layer: Layer = layer_norm if right else find_mutant("layer_norm", mistake).make()
    generator = torch.Generator().manual_seed(config.seed)
    x, dy = torch.randn(2, config.rows, config.features, generator=generator).double()
    weight, bias = torch.randn(2, config.features, generator=generator).double()
    shape, ones, zeros = (config.features,), torch.ones_like(weight), torch.zeros_like(bias)
    verdicts = {
        "of the sum": _fits(lambda x: layer(x, shape, ones, zeros).sum(), x),
        "by parameters": _fits(lambda w, b: (layer(x, shape, w, b) * dy).sum(), weight, bias),
        "weight of 1": _fits(lambda x: layer(x, shape, ones, zeros), x),
        "random weight": _fits(lambda x, w, b: layer(x, shape, w, b), x, weight, bias),
        "check_layer": check_layer(layer, like="layer_norm").passed,
    }
    return {"passed": tuple(check for check, passed in verdicts.items() if passed)}


run = Sweep(run_one, lambda config: grid(mistake=("none", *config.mistakes)))
