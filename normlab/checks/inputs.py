"""Inputs of the checks, and what the formula, torch and the layer under test make of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from normlab.checks.formula import Formula
from normlab.checks.tolerances import HALF, error_budget, max_error
from normlab.norms import NORMS, Case

_ULPS = 32  # a few roundings per operation, in any order of summation, for up to 1e3 terms
_HALF_ULPS = 4  # sums are wide there: one rounding of the result, and of weight and bias
#: what one call gave: "y", "dx", "dweight", "dbias", as far as there are such
Results = dict[str, Tensor]


@dataclass(frozen=True)
class Scale:
    """Scale of an input."""

    name: str  #: of the check
    rms: float  #: standard deviation of the entries
    mean: float = 0.0  #: added to every entry
    factor: float = 8.0  #: how many times torch's own error is allowed


ORDINARY = Scale("ordinary input", rms=1.0)
SMALL = Scale("small input", rms=3e-3)
# a mean rounded to float32 costs torch as much as anybody; mean(x²) - mean(x)² costs a
# thousand times more
SHIFTED = Scale("shifted input", rms=1.0, mean=1e3, factor=32.0)
BATCH = Scale("batch", rms=1.3, mean=0.8)
# inputs and running variances of the size at which eps shows
NEAR_EPS = Scale("near eps", rms=5e-3, mean=2e-3)


@dataclass(frozen=True)
class Inputs:
    """One random input with parameters and an upstream gradient."""

    case: Case
    scale: Scale
    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    dy: Tensor

    @property
    def given(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Input, weight and bias."""
        return self.x, self.weight, self.bias

    def to(self, dtype: torch.dtype) -> Inputs:
        """The same in another dtype."""
        weight, bias = (None if p is None else p.to(dtype) for p in (self.weight, self.bias))
        return replace(self, x=self.x.to(dtype), weight=weight, bias=bias, dy=self.dy.to(dtype))

    def leaves(
        self, dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Copies of input, weight and bias that gradients are taken by; None: as they are."""
        wide = self if dtype is None else self.to(dtype)
        weight, bias = (
            None if p is None else p.detach().clone().requires_grad_()
            for p in (wide.weight, wide.bias)
        )
        return wide.x.detach().clone().requires_grad_(), weight, bias


def make_inputs(
    case: Case, scale: Scale = ORDINARY, dtype: torch.dtype = torch.float32, *, seed: int
) -> Inputs:
    """Random values; the weight is away from 0 and 1 and the bias away from 0."""
    g = torch.Generator().manual_seed(seed)

    def normal(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    x = scale.mean + scale.rms * normal(case.shape)
    weight = 1.5 + 0.4 * normal(case.parameter_shape) if case.weight else None
    bias = -0.7 + 0.5 * normal(case.parameter_shape) if case.bias else None
    return Inputs(case, scale, x, weight, bias, normal(case.shape)).to(dtype)


def roundings(dtype: torch.dtype, key: str = "y") -> int:
    """How many units in the last place one of the results may be off."""
    if dtype in HALF:
        return _HALF_ULPS * (1 if key == "y" else 2)
    return _ULPS * (1 if key == "y" else 4)


def results_of(y: Tensor, *leaves: Tensor | None) -> Results:
    """An output, and the gradients by input, weight and bias that a backward pass has left."""
    grads = (None if leaf is None else leaf.grad for leaf in leaves)
    named = zip(("y", "dx", "dweight", "dbias"), (y, *grads), strict=False)
    return {key: value.detach() for key, value in named if value is not None}


def oracle(formula: Formula, inputs: Inputs, *, backward: bool = True) -> Results:
    """The float64 formula on the same (rounded) inputs."""
    return plain_results(formula, inputs.to(torch.float64), backward=backward)


def plain_results(formula: Formula, inputs: Inputs, *, backward: bool = True) -> Results:
    """The formula with statistics in float32 or float64, and results in the dtype of the input."""
    x, *parameters = inputs.leaves()
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    given = (None if p is None else p.to(wide) for p in parameters)
    y = formula.at(inputs.case)(x.to(wide), *given).to(x.dtype)
    if backward:
        y.backward(inputs.dy)
    return results_of(y, x, *parameters)


def torch_baseline(
    like: str, inputs: Inputs, *, backward: bool = True, eps: float | None = None
) -> Results:
    """torch's own layer, or the plain formula where it has none, on the same inputs."""
    dtype = inputs.x.dtype
    x, weight, bias = inputs.leaves(dtype)
    case, norm = inputs.case, NORMS[like]
    function, plain = norm.torch_function(), Formula.of(like).at(case)
    alone = (
        not norm.trailing and plain.cells(case) == 1 and (case.shape[0] == 1 or not norm.grouped)
    )
    if function is None or alone:  # torch takes no mean over one value
        return plain_results(Formula.of(like), inputs, backward=backward)
    last = tuple(range(-len(case.axis or ()), 0))
    own = case.axis is not None  # then torch's function gets no weight, which it has elsewhere
    y = function(
        x if case.axis is None else x.movedim(case.axis, last),
        *norm.arguments(
            normalized_shape=[case.shape[a] for a in case.axis or ()] or [*case.parameter_shape],
            num_groups=case.num_groups,
            weight=None if own else weight,
            bias=None if own else bias,
            momentum=0.0,
            eps=plain.eps if eps is None else eps,
        ),
    )
    if case.axis is not None:
        y = plain.affine(x, y.movedim(last, case.axis), weight, bias)
    elif bias is not None and not norm.has_bias:
        y = y + bias  # torch has none; some models do
    if backward:
        y.backward(inputs.dy)
    return results_of(y, x, weight, bias)


@dataclass(frozen=True)
class Evidence:
    """A call and one result of it, in float64."""

    formula: Formula  #: right formula, with the axes of this call
    inputs: Inputs
    got: Tensor  #: what the layer returned: its output, or one of its gradients
    budget: float = 0.0  #: largest error allowed
    probe: bool = False  #: a call made only to see eps; its error is judged by the diagnosis
    dtype: torch.dtype = torch.float32  #: that the call was made in

    @functools.cached_property
    def output(self) -> Tensor:
        """What the right formula gives."""
        return self.formula(*self.inputs.given)

    def within(self, budget: float) -> Evidence:
        """The same with another budget; the output is not computed again."""
        other = replace(self, budget=budget)
        other.__dict__["output"] = self.output
        return other

    @functools.cached_property
    def excess(self) -> float:
        """Error of an output in units of what is allowed."""
        return 0.0 if self.probe else max_error(self.got, self.output) / self.budget


def _torch_errors(like: str, inputs: Inputs, backward: bool) -> dict[str, float]:
    theirs = torch_baseline(like, inputs, backward=backward)
    right = oracle(Formula.of(like), inputs, backward=backward)
    return {key: max_error(theirs[key], right[key]) for key in right}


@functools.lru_cache(4096)  # they are the same for every layer
def _torch_errors_of_seed(
    like: str, case: Case, scale: Scale, dtype: torch.dtype, seed: int, backward: bool
) -> dict[str, float]:
    return _torch_errors(like, make_inputs(case, scale, dtype, seed=seed), backward)


@dataclass(frozen=True)
class Comparison:
    """One call."""

    inputs: Inputs
    got: Results  #: what the layer gave
    torch_errors: dict[str, float]  #: of torch's own norm on the same inputs

    @classmethod
    def of(cls, inputs: Inputs, got: Results, like: str, *, backward: bool = True) -> Comparison:
        """What the layer gave, beside torch's norm of that name."""
        return cls(inputs, got, _torch_errors(like, inputs, backward))

    @classmethod
    def of_seed(
        cls, inputs: Inputs, got: Results, like: str, seed: int, *, backward: bool = True
    ) -> Comparison:
        """The same for inputs as :func:`make_inputs` gives them."""
        drawn = inputs.case, inputs.scale, inputs.x.dtype, seed
        return cls(inputs, got, _torch_errors_of_seed(like, *drawn, backward))

    def budget(self, key: str, expected: Tensor) -> float:
        """Largest error allowed to one of the layer's results."""
        error, factor, dtype = self.torch_errors[key], self.inputs.scale.factor, self.inputs.x.dtype
        return error_budget(expected, dtype, error, factor=factor, ulps=roundings(dtype, key))

    def evidence(self, formula: Formula, got: Tensor, budget: float = 0.0) -> Evidence:
        """One of its results, for a diagnosis."""
        wide = self.inputs.to(torch.float64)
        dtype = self.inputs.x.dtype
        return Evidence(formula.at(wide.case), wide, got.double(), budget, dtype=dtype)
