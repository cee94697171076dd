"""A layer on trial: how it is called, with which inputs, and the formula that it is held to."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from normlab.checks.formula import Formula
from normlab.checks.inputs import BATCH, Inputs, Results, make_inputs, oracle, results_of
from normlab.checks.probing import ForeignNorm
from normlab.checks.probing.layer import WRAP_IT
from normlab.norms import NORMS, Case, Norm

T = TypeVar("T")

_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class BackwardFailed(Exception):
    """The forward pass of a case went through and the backward pass raised."""

    def __init__(self, case: Case, error: Exception):
        super().__init__(f"{type(error).__name__}: {error}")
        self.case = case


class NoTensor(Exception):
    """The layer returned something else than one tensor."""


@dataclass(frozen=True)
class Scope:
    """Options that limit what is checked."""

    dtype: torch.dtype = torch.float32  #: of the inputs whose values and gradients are compared
    #: 16-bit dtypes that are tried besides
    half: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16)
    backward: bool = True  #: compare gradients, too
    empty: bool = True  #: give inputs without rows
    batch_of_one: bool = True  #: give a single sample
    double: bool = True  #: give float64 inputs, too
    double_backward: bool = False  #: differentiate twice, too
    tracked: bool = True  #: a batch norm keeps running statistics, which evaluation takes

    @classmethod
    def of(
        cls,
        dtype: Any,
        dtypes: Collection[Any] | None,
        forward_only: bool,
        empty: bool,
        batch_of_one: bool,
        double_backward: bool,
        tracked: bool,
    ) -> Scope:
        """From the arguments of :func:`normlab.checks.check_layer`.

        Raises:
            ValueError: a dtype is none of those that are tried.
        """
        main = torch.float32 if dtype is None else _find_dtype("dtype", dtype)
        half = cls.half if main == torch.float32 else ()
        if dtypes is not None:
            chosen = [_find_dtype("dtypes", d) for d in dtypes]
            half = tuple(d for d in half if d in chosen)
        twice = double_backward and not forward_only
        double = dtypes is None
        return cls(main, half, not forward_only, empty, batch_of_one, double, twice, tracked)


def _find_dtype(argument: str, dtype: Any) -> torch.dtype:
    name = name_of(dtype)
    if name not in _DTYPES:
        near = difflib.get_close_matches(name, _DTYPES, 1, 0.5)
        hint = f". Did you mean {near[0]}?" if near else ""
        raise ValueError(f"{argument}: got {name!r}; expected one of {', '.join(_DTYPES)}{hint}")
    return _DTYPES[name]


def name_of(dtype: Any) -> str:
    """As "float32"."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Trial:
    """What every check gets."""

    layer: ForeignNorm
    cases: tuple[Case, ...]  #: that the layer takes
    declared: Formula  #: as its conventions say
    actual: Formula  #: that describes it, mistakes included, so that each is reported once
    scope: Scope = Scope()
    weight_cast: str | None = None  #: the declared order of weight and cast
    momentum: float | None = None  #: the declared one
    asked: tuple[int, ...] | None = None  #: the shape that the caller gave

    @property
    def norm(self) -> Norm:
        """The record of the family."""
        return NORMS[self.layer.like]

    def observe(self, inputs: Inputs, *, backward: bool = True, training: bool = True) -> Results:
        """Call the layer and differentiate it.

        Raises:
            NoTensor: it does not return one tensor.
            BackwardFailed: the backward pass raises.
        """
        x, weight, bias = inputs.leaves()
        same = all(p is None or p.dtype == x.dtype for p in (weight, bias))
        call = functools.partial(self.layer, training=training, half_parameters=same)
        try:
            y, leaves = call(inputs.case, x, weight, bias)
        except RuntimeError as error:
            if "in-place" not in str(error):
                raise
            # retry on a clone: a leaf forbids what the check of the input is to report
            y, leaves = call(inputs.case, x.clone(), weight, bias)
        if not isinstance(y, Tensor):
            kind = type(y).__name__
            raise NoTensor(f"the layer returns a {kind} and not one tensor. {WRAP_IT}")
        wanted = backward and self.scope.backward
        if wanted and y.shape == x.shape and y.requires_grad:
            try:
                y.backward(inputs.dy.to(y.dtype, copy=True))
            except Exception as error:  # the layer under test may fail in any way
                raise BackwardFailed(inputs.case, error) from error
        return results_of(y, x, *leaves[:2])

    def expect(self, inputs: Inputs, *, backward: bool = True) -> Results:
        """What the actual formula gives in float64."""
        return oracle(self.actual, inputs, backward=backward)

    @property
    def small_case(self) -> Case:
        """A case with few entries for each channel, so that Bessel's correction can be seen."""
        case = self.cases[0]
        small = tuple(min(n, 3 + i) for i, n in enumerate(case.shape[2:]))
        few = replace(case, shape=(min(case.shape[0], 4), case.shape[1], *small))
        if few == case or torch.Size(case.shape).numel() < 1000:
            return case
        t = make_inputs(few, BATCH, seed=0)
        try:
            with torch.no_grad():
                y, _ = self.layer(few, *t.given)
        except Exception:  # the layer takes the shape it was given only
            return case
        return few if y.shape == t.x.shape else case


def call_each(
    cases: Sequence[Case], call: Callable[[Case], T]
) -> tuple[dict[Case, T], dict[Case, str]]:
    """Results of the cases that a layer takes, and what it says to the others."""
    taken, refused = {}, {}
    for case in cases:
        try:
            taken[case] = call(case)
        except (BackwardFailed, NoTensor):
            raise
        except Exception as error:  # the layer under test may fail in any way
            refused[case] = f"{type(error).__name__} for an input of shape {case.shape}: {error}"
    return taken, refused
