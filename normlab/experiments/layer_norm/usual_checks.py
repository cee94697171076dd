"""Which of the usual checks notice a wrong LayerNorm?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm

from normlab.checks import LAYER_NORM_MUTANTS, check_layer
from normlab.experiments.former_sweep import Point, Sweep, grid
from normlab.experiments.settings import Index, Positive

Check = Literal["shape", "values", "gradient of sum", "random gradient", "check_layer"]
CHECKS: tuple[Check, ...] = get_args(Check)
Layer = Callable[..., Tensor]


@dataclass(frozen=True)
class Config:
    """The wrong LayerNorms of :mod:`normlab.checks.mutants`, and torch's, under five checks."""

    #: of inputs; a check notices a mistake if it does for any seed
    seeds: tuple[Index, ...] = (0, 1, 2)
    shape: tuple[int, ...] = (4, 6, 64)  #: of the input, whose last axis is normalized
    tolerance: Positive = 1e-4  #: of the usual checks, absolute


def _gradient(layer: Layer, x: Tensor, dy: Tensor, *parameters: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(layer(leaf, x.shape[-1:], *parameters), leaf, dy)[0]


def _noticed_by(layer: Layer, config: Config, seed: int) -> set[str]:
    generator = torch.Generator().manual_seed(seed)
    x, dy = torch.randn(2, *config.shape, generator=generator)
    features = config.shape[-1:]
    weight, bias = torch.randn(2, *features, generator=generator)

    def differ(a: Tensor, b: Tensor) -> bool:
        return not bool((a - b).abs().max() <= config.tolerance)

    y = layer(x, features)
    ones = torch.ones_like(x)
    verdicts: dict[Check, bool] = {
        "shape": y.shape != x.shape,
        "values": differ(y, torch_layer_norm(x, features)),
        "gradient of sum": differ(_gradient(layer, x, ones), _gradient(torch_layer_norm, x, ones)),
        "random gradient": differ(
            _gradient(layer, x, dy, weight, bias), _gradient(torch_layer_norm, x, dy, weight, bias)
        ),
    }
    return {check for check, noticed in verdicts.items() if noticed}


def _points(config: Config) -> list[Point]:
    return grid(layer=("torch", *LAYER_NORM_MUTANTS))


def run_one(config: Config, layer: str) -> dict[str, Any]:
    """Put one layer through every check.

    Measures:
        noticed: the checks that reject it.
    """
    tested: Layer = torch_layer_norm if layer == "torch" else LAYER_NORM_MUTANTS[layer]
    found = set().union(*(_noticed_by(tested, config, seed) for seed in config.seeds))
    if not check_layer(tested, like="layer_norm").passed:
        found.add("check_layer")
    return {"noticed": tuple(check for check in CHECKS if check in found)}


run = Sweep(run_one, _points)
