"""One way to call any norm: a function of torch's signature, or a module."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.cases import FUNCTION_CASES, Case

__all__ = ["FunctionSubject", "ModuleSubject", "make_subject"]

_WEIGHT_NAMES = ("weight", "gamma", "g", "gain", "scale", "a_2", "w")
_BIAS_NAMES = ("bias", "beta", "b", "shift", "b_2")


class FunctionSubject:
    """A plain function with the parameter order of `torch.nn.functional`."""

    def __init__(self, function: Callable[..., Tensor], like: str, cases: Sequence[Case] | None):
        self.function = function
        self.like = like
        self.cases = list(cases or FUNCTION_CASES[like])
        self.has_running = like in ("batch_norm", "instance_norm")
        self.declared_eps = None
        self.takes_eps = _takes_eps(function)

    def __call__(
        self,
        case: Case,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        *,
        training: bool = True,
        running: tuple[Tensor, Tensor] | None = None,
        momentum: float = 0.1,
        eps: float | None = None,
    ) -> tuple[Tensor, list[Tensor | None]]:
        last = () if eps is None else (eps,)
        mean, var = running if running is not None else (None, None)
        if self.like == "layer_norm":
            y = self.function(x, case.parameter_shape, weight, bias, *last)
        elif self.like == "rms_norm":
            y = self.function(x, case.parameter_shape, weight, *last)
        elif self.like == "group_norm":
            y = self.function(x, case.num_groups, weight, bias, *last)
        else:
            y = self.function(x, mean, var, weight, bias, training, momentum, *last)
        return y, [weight, bias]


def _takes_eps(function: Callable[..., Any]) -> bool:
    try:
        return "eps" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a C function without a signature
        return False


class ModuleSubject:
    """A module, copied before every use; its parameters are found by name or by their effect."""

    def __init__(
        self, module: nn.Module, like: str, shape: Sequence[int] | None, num_groups: int | None
    ):
        self.module = copy.deepcopy(module).cpu()
        self.like = like
        names = dict(self.module.named_parameters())
        self.weight_name = _by_name(names, _WEIGHT_NAMES)
        self.bias_name = _by_name(names, _BIAS_NAMES)
        buffers = dict(self.module.named_buffers())
        self.mean_name = next((n for n in buffers if "mean" in n.rsplit(".", 1)[-1]), None)
        self.var_name = next((n for n in buffers if "var" in n.rsplit(".", 1)[-1]), None)
        self.has_running = self.mean_name is not None and self.var_name is not None
        self.declared_eps = _attribute(self.module, ("eps", "variance_epsilon"))
        self.cases = [self._case(shape, next(iter(names.values()), None), num_groups)]
        self._assign_by_effect([n for n in names if n not in (self.weight_name, self.bias_name)])
        case = self.cases[0]
        self.cases = [
            dataclasses.replace(
                case, weight=self.weight_name is not None, bias=self.bias_name is not None
            )
        ]

    def _assign_by_effect(self, unknown: list[str]) -> None:
        """Tell weight from bias: a bias changes the output by the same amount for every input."""
        if self.weight_name is not None and self.bias_name is not None:
            return
        g = torch.Generator().manual_seed(0)
        inputs = [torch.randn(self.cases[0].shape, generator=g) for _ in range(2)]
        for name in unknown:
            before, after = self.with_dtype(torch.float32), self.with_dtype(torch.float32)
            with torch.no_grad():
                dict(after.named_parameters())[name].add_(1.0)
                moves = [after.train()(x) - before.train()(x) for x in inputs]
            if all(float(m.abs().max()) < 1e-6 for m in moves):
                continue
            additive = torch.allclose(moves[0], moves[1], atol=1e-5)
            if additive and self.bias_name is None:
                self.bias_name = name
            elif not additive and self.weight_name is None:
                self.weight_name = name

    def _case(
        self, shape: Sequence[int] | None, parameter: Tensor | None, num_groups: int | None
    ) -> Case:
        parameter_shape = _parameter_shape(self.module, self.like, parameter)
        if self.like == "group_norm" and num_groups is None:
            num_groups = _attribute(self.module, ("num_groups",))
            if num_groups is None:
                raise ValueError("num_groups: the module has no such attribute; pass num_groups=")
        if shape is None and parameter_shape is not None:
            shape = self._infer_shape(parameter_shape)
        if shape is None:
            raise ValueError(
                "shape: could not be inferred from the module's parameters and attributes; "
                "pass the shape of an input, such as shape=(4, 16)"
            )
        shape = tuple(shape)
        if parameter_shape is None:
            parameter_shape = shape[-1:] if self.like in ("layer_norm", "rms_norm") else shape[1:2]
        return Case(
            shape,
            parameter_shape,
            normalized_ndim=len(parameter_shape),
            num_groups=num_groups or 1,
        )

    def _infer_shape(self, parameter_shape: tuple[int, ...]) -> tuple[int, ...] | None:
        size = parameter_shape[0]
        if self.like in ("layer_norm", "rms_norm"):
            candidates = [lead + parameter_shape for lead in ((5,), (3, 5), (2, 3, 5))]
        else:
            candidates = [(6, size), (3, size, 7), (4, size, 6, 5), (2, size, 3, 4, 5)]
            if self.like == "instance_norm":  # two axes would be one sample without its batch axis
                candidates = candidates[1:]
        for shape in candidates:
            try:
                with torch.no_grad():
                    y = copy.deepcopy(self.module).train()(torch.randn(shape))
            except Exception:  # a module may refuse a rank in any way; try the next rank
                continue
            if isinstance(y, Tensor) and y.shape == shape:
                return shape
        return None

    def with_dtype(self, dtype: torch.dtype) -> nn.Module:
        """A fresh copy whose floating parameters and buffers have this dtype."""
        return copy.deepcopy(self.module).to(dtype)

    def _fill(self, module: nn.Module, name: str | None, value: Tensor | None) -> None:
        if name is None or value is None:
            return
        target = dict(itertools.chain(module.named_parameters(), module.named_buffers()))[name]
        with torch.no_grad():
            target.copy_(value.reshape(target.shape))

    def prepare(
        self,
        dtype: torch.dtype,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        running: tuple[Tensor, Tensor] | None = None,
    ) -> nn.Module:
        """A copy with these parameters and buffers."""
        module = self.with_dtype(dtype)
        self._fill(module, self.weight_name, weight)
        self._fill(module, self.bias_name, bias)
        if running is not None:
            self._fill(module, self.mean_name, running[0])
            self._fill(module, self.var_name, running[1])
        return module

    def running_of(self, module: nn.Module) -> tuple[Tensor, Tensor] | None:
        """The running statistics of a copy, flattened."""
        if self.mean_name is None or self.var_name is None:
            return None
        buffers = dict(module.named_buffers())
        return buffers[self.mean_name].flatten(), buffers[self.var_name].flatten()

    def __call__(
        self,
        case: Case,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        *,
        training: bool = True,
        running: tuple[Tensor, Tensor] | None = None,
        momentum: float = 0.1,
    ) -> tuple[Tensor, list[Tensor | None]]:
        module = self.prepare(x.dtype, weight, bias, running).train(training)
        named: Mapping[str, Tensor] = dict(module.named_parameters())
        y = module(x)
        leaves = [named.get(self.weight_name or ""), named.get(self.bias_name or "")]
        if running is not None:
            after = self.running_of(module)
            if after is not None:
                running[0].copy_(after[0].detach())
                running[1].copy_(after[1].detach())
        return y, leaves


def _by_name(names: Mapping[str, Tensor], wanted: tuple[str, ...]) -> str | None:
    for want in wanted:
        for name in names:
            if name.rsplit(".", 1)[-1] == want:
                return name
    return None


def _attribute(module: nn.Module, names: tuple[str, ...]) -> Any:
    for part in module.modules():
        for name in names:
            value = getattr(part, name, None)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return value
    return None


def _parameter_shape(
    module: nn.Module, like: str, parameter: Tensor | None
) -> tuple[int, ...] | None:
    channels = like not in ("layer_norm", "rms_norm")
    if parameter is not None:
        return (parameter.numel(),) if channels else tuple(parameter.shape)
    for part in module.modules():
        if channels:
            size = _attribute(part, ("num_features", "num_channels"))
            if size is not None:
                return (int(size),)
        else:
            shape = getattr(part, "normalized_shape", None)
            if isinstance(shape, int):
                return (shape,)
            if isinstance(shape, Sequence) and len(shape):
                return tuple(shape)
    return None


def make_subject(
    layer: Callable[..., Tensor],
    like: str,
    shape: Sequence[int] | None,
    num_groups: int | None,
) -> FunctionSubject | ModuleSubject:
    """Wrap a module or a function.

    Raises:
        TypeError: `layer` is a class, or cannot be called.
        ValueError: the shape of a module's input cannot be inferred.
    """
    if isinstance(layer, type) or not callable(layer):
        raise TypeError(
            f"layer: got {layer!r}; expected a module or a function. Construct a class first"
        )
    if isinstance(layer, nn.Module):
        return ModuleSubject(layer, like, shape, num_groups)
    cases = None
    if shape is not None:
        shape = tuple(shape)
        trailing = like in ("layer_norm", "rms_norm")
        parameter_shape = shape[-1:] if trailing else shape[1:2]
        cases = [Case(shape, parameter_shape, num_groups=num_groups or 1, bias=like != "rms_norm")]
    elif num_groups is not None and like == "group_norm":
        size = 3 * num_groups
        cases = [
            Case((3, size), (size,), num_groups=num_groups),
            Case((2, size, 6, 5), (size,), num_groups=num_groups),
        ]
    return FunctionSubject(layer, like, cases)
