"""Every norm at many shapes: the inputs that every test of the layers shares."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from normlab.checks.formula import FAMILIES, Formula
from normlab.norms import NORMS


@dataclass(frozen=True)
class NormCase:
    """A norm by its name, a shape, and its fixed arguments."""

    name: str
    shape: tuple[int, ...]
    parameter_shape: tuple[int, ...]
    fixed: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        groups = self.fixed.get("num_groups")
        return f"{self.name}{list(self.shape)}" + (f"g{groups}" if groups else "")

    @property
    def has_bias(self) -> bool:
        return NORMS[self.name].has_bias


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
    # norms without shapes of their own here take those of their records
    for name in sorted(set(FAMILIES) - {case.name for case in cases}):
        norm = NORMS[name]
        for case in norm.cases:
            given = {"normalized_shape": case.parameter_shape, "num_groups": case.num_groups}
            fixed = {key: value for key, value in given.items() if key in norm.signature}
            cases.append(NormCase(name, case.shape, case.parameter_shape, fixed))
    return cases


def find_other(name: str) -> Callable[..., Tensor]:
    """torch's function, or the formula of the checks where torch has none."""
    return NORMS[name].torch_function() or functools.partial(_formula, name)


def _formula(
    name: str,
    input: Tensor,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float,
    normalized_shape: tuple[int, ...] = (1,),
    num_groups: int = 1,
) -> Tensor:
    half = input.dtype in (torch.float16, torch.bfloat16)
    formula = Formula.of(
        name, normalized_ndim=len(normalized_shape), num_groups=num_groups, eps=eps
    )
    wide = (None if t is None else t.float() if half else t for t in (input, weight, bias))
    return formula(*wide).to(input.dtype)


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
    parameters = {}
    if NORMS[case.name].has_weight:
        parameters["weight"] = 1.5 + 0.5 * normal(case.parameter_shape)
    if case.has_bias:
        parameters["bias"] = -0.7 + 0.5 * normal(case.parameter_shape)
    return x, parameters, normal(case.shape)
