"""A plain function, called as a norm of a family: how it wants to be called."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from normlab import norms
from normlab.checks.probing.arguments import INPUTS
from normlab.checks.probing.names import NAMES
from normlab.norms import NORMS


def _signature(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        parameters = list(inspect.signature(owner.forward).parameters.values())
        # with a setup_context of its own, forward has no ctx
        own = owner.setup_context is not torch.autograd.Function.setup_context
        return parameters if own else parameters[1:]
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a C function without a signature
        return None


def _input_index(parameters: list[inspect.Parameter]) -> int:
    """Position of the input: 0, unless a weight or bias comes first and another name is usual."""
    known = {name for role in ("weight", "bias") for name in NAMES[role]}
    if parameters and parameters[0].name.lower() in known:
        names = [p.name.lower() for p in parameters]
        return next((k for k, name in enumerate(names) if name in INPUTS), 0)
    return 0


def _roles(parameters: list[inspect.Parameter], like: str) -> list[str] | None:
    """What each parameter after the input stands for; None where a name says nothing."""
    roles: list[str] = []
    for p in parameters[1:]:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            return None
        allowed = (r for r in NORMS[like].roles if p.name.lower() in NAMES[r] and r not in roles)
        role = next(allowed, "")
        if not role and p.default is p.empty:
            return None
        roles.append(role)
    return roles


class ForeignFunction:
    """A plain function, called as a norm of a family in the order of `torch.nn.functional`.

    Where every parameter has a usual name, the names count, so that a function of
    (x, weight, bias) or with keyword-only parameters can be called, too.

    Args:
        function: of an input and parameters.
        like: family.
        cases: inputs that it is called with; None for those of the record.
        eps: given where the function asks for one and the caller names none.
        order: of the parameters after the input, where their names do not say it; None for that
            of the record.
    """

    declared_eps: float | None = None
    fixed: frozenset[str] = frozenset()

    def __init__(
        self,
        function: Callable[..., Tensor],
        like: str,
        cases: Sequence[norms.Case] | None,
        eps: float | None,
        order: Sequence[str] | None = None,
    ):
        self.function = function
        self.like = like
        self.expected_eps = eps
        self.compiled = hasattr(function, "_torchdynamo_orig_callable")
        self.needs_running = False
        self._order = tuple(order or NORMS[like].roles)
        self._parameters = _signature(function)
        self._before = 0  # number of parameters before the input
        if self._parameters:
            self._before = _input_index(self._parameters)
            self._parameters.insert(0, self._parameters.pop(self._before))
        self._roles = None if self._parameters is None else _roles(self._parameters, like)
        norm = NORMS[like]
        known = self.known = self._order if self._roles is None else tuple(self._roles)
        self.has_running = "running_mean" in known and "running_var" in known
        self.has_training = "training" in known
        self.declared_momentum = 0.3 if "momentum" in known else 0.1
        self.takes_eps = "eps" in known and self._parameters is not None
        self.cases = [
            dataclasses.replace(
                c, weight=c.weight and "weight" in known, bias=c.bias and "bias" in known
            )
            for c in cases or norm.cases
        ]
        if "normalized_shape" not in known and norm.trailing:
            self.cases = [c for c in self.cases if c.normalized_ndim == 1]

    def require_running(self, call: Callable[[], Any]) -> Exception | None:
        """Give running statistics to every call, if this call raises without some and not with.

        Returns:
            what it raises without them; None if that changes nothing.
        """
        try:
            call()
        except Exception as error:  # the function may fail in any way
            self.needs_running = True
            with contextlib.suppress(Exception):
                call()
                return error
            self.needs_running = False
        return None

    def admits_none(self, role: str) -> bool:
        """Whether the signature lets an argument be None: by its default or its annotation."""
        parameters = [] if self._parameters is None else self._parameters[1:]
        for p, its_role in zip(parameters, self.known, strict=False):
            if its_role == role and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                annotation = "" if p.annotation is p.empty else str(p.annotation)
                return p.default is None or "None" in annotation or "Optional" in annotation
        return False

    def resized(self, case: norms.Case, axis: int, size: int) -> norms.Case:
        """The case with another size along an axis, which the parameters follow."""
        shape = (*case.shape[:axis], size, *case.shape[axis + 1 :])
        parameters = NORMS[self.like].parameter_shape(shape, case.normalized_ndim)
        return dataclasses.replace(case, shape=shape, parameter_shape=parameters)

    def __call__(
        self,
        case: norms.Case,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        *,
        training: bool = True,
        running: tuple[Tensor, Tensor] | None = None,
        momentum: float = 0.1,
        eps: float | None = None,
        half_parameters: bool = True,
    ) -> tuple[Tensor, list[Tensor | None]]:
        if running is None and self.needs_running:
            size = case.parameter_shape
            running = torch.zeros(size, dtype=x.dtype), torch.ones(size, dtype=x.dtype)
        mean, var = running if running is not None else (None, None)
        values = {
            "normalized_shape": case.parameter_shape,
            "num_groups": case.num_groups,
            "running_mean": mean,
            "running_var": var,
            "weight": weight,
            "bias": bias,
            "training": training,
            "momentum": momentum,
            "eps": eps,
        }
        return self._call(x, values), [weight, bias]

    def _call(self, x: Tensor, values: dict[str, Any]) -> Tensor:
        if self._parameters is None or self._roles is None:
            *roles, last = self._order
            if last == "eps" and values["eps"] is None:
                return self.function(x, *(values[r] for r in roles))
            eps = self.expected_eps if values["eps"] is None else values["eps"]
            return self.function(x, *((values | {"eps": eps})[r] for r in (*roles, last)))
        positional, named = [], {}
        for p, role in zip(self._parameters[1:], self._roles, strict=True):
            value = values[role] if role else p.default
            if role == "eps" and value is None:
                value = p.default if p.default is not p.empty else self.expected_eps
            if p.kind is p.KEYWORD_ONLY:
                named[p.name] = value
            else:
                positional.append(value)
        positional.insert(self._before, x)
        return self.function(*positional, **named)
