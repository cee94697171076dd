"""Inputs of the checks, and a call of the layer, of torch and of the float64 formula with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normlab.checks.formula import Formula, default_eps
from normlab.checks.probing.modules import ForeignNorm
from normlab.norms import NORMS, Case


class BackwardFailed(Exception):
    """The forward pass of a case went through and the backward pass raised."""

    def __init__(self, case: Case, error: Exception):
        super().__init__(f"{type(error).__name__}: {error}")
        self.case = case


class NoTensor(Exception):
    """The layer returned something else than one tensor."""


@dataclass(frozen=True)
class Scale:
    """Scale of an input."""

    name: str  #: of the check
    rms: float  #: standard deviation of the entries
    mean: float  #: added to every entry
    factor: float  #: how many times torch's own error is allowed


ORDINARY = Scale("ordinary input", rms=1.0, mean=0.0, factor=8.0)
SMALL = Scale("small input", rms=3e-3, mean=0.0, factor=8.0)
# a mean rounded to float32 costs torch as much as anybody; mean(x²) - mean(x)² costs a
# thousand times more
SHIFTED = Scale("shifted input", rms=1.0, mean=1e3, factor=32.0)
BATCH = Scale("batch", rms=1.3, mean=0.8, factor=8.0)
# inputs and running variances of the size at which eps shows
NEAR_EPS = Scale("near eps", rms=5e-3, mean=2e-3, factor=8.0)


@dataclass
class Inputs:
    """One random input with parameters and an upstream gradient, in the dtype under test."""

    case: Case
    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    dy: Tensor

    def to(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Input, weight and bias in another dtype."""
        weight, bias = (None if p is None else p.to(dtype) for p in (self.weight, self.bias))
        return self.x.to(dtype), weight, bias

    def leaves(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Copies of them that gradients are taken by."""
        x, *parameters = self.to(dtype)
        weight, bias = (None if p is None else _leaf(p) for p in parameters)
        return _leaf(x), weight, bias


@dataclass
class Outcome:
    """What one call gave; None where there is no such thing."""

    y: Tensor
    dx: Tensor | None = None
    dweight: Tensor | None = None
    dbias: Tensor | None = None


def make_inputs(case: Case, scale: Scale, dtype: torch.dtype, seed: int) -> Inputs:
    """Random values; the weight is away from 0 and 1 and the bias away from 0."""
    g = torch.Generator().manual_seed(seed)

    def normal(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    x = scale.mean + scale.rms * normal(case.shape)
    weight = 1.5 + 0.4 * normal(case.parameter_shape) if case.weight else None
    bias = -0.7 + 0.5 * normal(case.parameter_shape) if case.bias else None
    dy = normal(case.shape)
    wide = Inputs(case, x, weight, bias, dy)
    return Inputs(case, *wide.to(dtype), dy.to(dtype))


def formula_for(formula: Formula, case: Case) -> Formula:
    """The formula with the axes and groups of this case."""
    return formula.replace(
        normalized_ndim=case.normalized_ndim,
        num_groups=case.num_groups,
        axis=case.axis,
        weight_view=case.view,
    )


def conventions_of(like: str) -> dict[str, Any]:
    """Where the record wants eps, and what it adds to the weight."""
    norm = NORMS[like]
    return {
        "eps_placement": norm.eps_placement,
        "clamp_of": "root" if norm.eps_bounds == "root" else "variance",
        "weight_offset": float(norm.weight_offset),
    }


def torch_formula(like: str) -> Formula:
    """The formula with the default conventions of torch, or of the record."""
    return Formula(like, eps=default_eps(like), **conventions_of(like))


def _leaf(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_()


def _grad(value: Tensor | None) -> Tensor | None:
    return None if value is None or value.grad is None else value.grad.detach()


def observe(
    subject: ForeignNorm, inputs: Inputs, *, backward: bool = True, training: bool = True
) -> Outcome:
    """Call the layer and differentiate it."""
    x, weight, bias = inputs.leaves(inputs.x.dtype)
    try:
        y, leaves = subject(inputs.case, x, weight, bias, training=training)
    except RuntimeError as error:
        if "in-place" not in str(error):
            raise
        # a leaf forbids it; a layer that writes into its input must be able to, to be told so
        y, leaves = subject(inputs.case, x.clone(), weight, bias, training=training)
    if not isinstance(y, Tensor):
        raise NoTensor(
            f"the layer returns a {type(y).__name__} and not one tensor. Say which part of it "
            "counts: pass select='[0]', or wrap it: `lambda *args: layer(*args)[0]`"
        )
    wanted = backward and subject.scope.backward
    if wanted and y.shape == x.shape and y.requires_grad:
        try:
            y.backward(inputs.dy.to(y.dtype, copy=True))
        except Exception as error:  # the layer under test may fail in any way
            raise BackwardFailed(inputs.case, error) from error
    return Outcome(y.detach(), _grad(x), _grad(leaves[0]), _grad(leaves[1]))


def oracle(formula: Formula, inputs: Inputs, *, backward: bool = True) -> Outcome:
    """The float64 formula on the same (rounded) inputs."""
    x, weight, bias = inputs.leaves(torch.float64)
    y = formula_for(formula, inputs.case)(x, weight, bias)
    if backward:
        y.backward(inputs.dy.double())
    return Outcome(y.detach(), _grad(x), _grad(weight), _grad(bias))


def torch_baseline(like: str, inputs: Inputs, *, backward: bool = True) -> Outcome:
    """torch's own layer, or the plain formula where it has none, on the same inputs."""
    dtype = inputs.x.dtype
    x, weight, bias = inputs.leaves(dtype)
    case, norm = inputs.case, NORMS[like]
    function = norm.torch_function()
    if function is None:
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        parameters = (None if t is None else t.to(wide) for t in (weight, bias))
        y = formula_for(torch_formula(like), case)(x.to(wide), *parameters).to(dtype)
    else:
        last = tuple(range(-len(case.axis or ()), 0))
        own = case.axis is not None  # then torch's function gets no weight, which it has elsewhere
        y = function(
            x if case.axis is None else x.movedim(case.axis, last),
            *norm.arguments(
                normalized_shape=[case.shape[a] for a in case.axis or ()]
                or [*case.parameter_shape],
                num_groups=case.num_groups,
                weight=None if own else weight,
                bias=None if own else bias,
                momentum=0.0,
                eps=default_eps(like),
            ),
        )
        if case.axis is not None:
            y = y.movedim(last, case.axis)
            plain = formula_for(torch_formula(like), case)
            y = plain.affine(x, y, weight, bias)
        elif bias is not None and not norm.has_bias:
            y = y + bias  # torch has none; some models do
    if backward:
        y.backward(inputs.dy)
    return Outcome(y.detach(), _grad(x), _grad(weight), _grad(bias))
