"""Which of the usual checks notice a wrong LayerNorm?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm

from normlab.checks import LAYER_NORM_MUTANTS, check_layer
from normlab.experiments.settings import Index, Positive

__all__ = ["CHECKS", "Check", "Config", "Result", "run"]

Check = Literal["shape", "values", "gradient of sum", "random gradient", "check_layer"]
CHECKS: tuple[Check, ...] = (
    "shape",
    "values",
    "gradient of sum",
    "random gradient",
    "check_layer",
)
Layer = Callable[..., Tensor]


@dataclass(frozen=True)
class Config:
    """The wrong LayerNorms of :mod:`normlab.checks.mutants` under four usual checks and ours.

    Attributes:
        seeds: of inputs; a check notices a mistake if it does for any seed.
        shape: of the input, whose last axis is normalized.
        tolerance: of the usual checks, absolute.
    """

    seeds: tuple[Index, ...] = (0, 1, 2)
    shape: tuple[int, ...] = (4, 6, 64)
    tolerance: Positive = 1e-4


@dataclass(frozen=True)
class Result:
    """For each mutant the checks that notice it.

    Attributes:
        noticed: name of the mutant, and the checks that reject it.
        false_alarms: checks that reject torch's own layer.
    """

    noticed: tuple[tuple[str, tuple[str, ...]], ...]
    false_alarms: tuple[str, ...]

    def count(self, check: Check) -> int:
        """Mutants that `check` rejects."""
        return sum(check in checks for _, checks in self.noticed)

    def table(self) -> list[list[int]]:
        """One row for each mutant, one column for each check; 1 where it is rejected."""
        return [[int(check in checks) for check in CHECKS] for _, checks in self.noticed]


def _gradient(layer: Layer, x: Tensor, dy: Tensor, *parameters: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    layer(leaf, x.shape[-1:], *parameters).backward(dy)
    assert leaf.grad is not None  # a leaf that was used has one
    return leaf.grad


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


def _all_noticed_by(layer: Layer, config: Config) -> tuple[str, ...]:
    found = set().union(*(_noticed_by(layer, config, seed) for seed in config.seeds))
    if not check_layer(layer, like="layer_norm").passed:
        found.add("check_layer")
    return tuple(check for check in CHECKS if check in found)


def run(config: Config) -> Result:
    """Put every mutant, and torch's layer, through every check."""
    return Result(
        tuple((name, _all_noticed_by(m, config)) for name, m in LAYER_NORM_MUTANTS.items()),
        _all_noticed_by(torch_layer_norm, config),
    )
