"""The five norms at many shapes: the inputs that every test of the layers shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class NormCase:
    """A norm by its name in torch.nn.functional, a shape, and its fixed arguments."""

    name: str
    shape: tuple[int, ...]
    parameter_shape: tuple[int, ...]
    fixed: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        groups = self.fixed.get("num_groups")
        return f"{self.name}{list(self.shape)}" + (f"g{groups}" if groups else "")

    @property
    def has_bias(self) -> bool:
        return self.name != "rms_norm"


def _cases() -> list[NormCase]:
    cases = []
    for rows, size in ((1, 4), (3, 2), (5, 4), (33, 7), (512, 64), (9, 768)):
        for name in ("layer_norm", "rms_norm"):
            cases.append(NormCase(name, (rows, size), (size,), {"normalized_shape": (size,)}))
    for name in ("layer_norm", "rms_norm"):
        cases.append(NormCase(name, (2, 5, 3, 4), (3, 4), {"normalized_shape": (3, 4)}))
    for shape in ((2, 6), (4, 6), (33, 7), (4096, 8), (3, 5, 7), (6, 4, 9, 5)):
        fixed = {"running_mean": None, "running_var": None, "training": True}
        cases.append(NormCase("batch_norm", shape, shape[1:2], fixed))
    for shape, groups in (((2, 6), 3), ((2, 6), 1), ((3, 8, 5), 4), ((4, 12, 6, 5), 3)):
        cases.append(NormCase("group_norm", shape, shape[1:2], {"num_groups": groups}))
    for shape in ((2, 3, 2), (3, 5, 7), (6, 4, 9, 5)):
        cases.append(NormCase("instance_norm", shape, shape[1:2]))
    return cases


CASES = _cases()
SMALL_CASES = [c for c in CASES if torch.Size(c.shape).numel() <= 150]


def make_tensors(
    case: NormCase, *, rms: float = 1.0, mean: float = 0.0, seed: int = 0
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Input, parameters away from 0 and 1, and an upstream gradient, all float64."""
    g = torch.Generator().manual_seed(seed)

    def normal(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    x = mean + rms * normal(case.shape)
    parameters = {"weight": 1.5 + 0.5 * normal(case.parameter_shape)}
    if case.has_bias:
        parameters["bias"] = -0.7 + 0.5 * normal(case.parameter_shape)
    return x, parameters, normal(case.shape)
