"""A pointwise function after a norm: removed for the probing, then named."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from normlab.checks.probing.arguments import Wrapped
from normlab.checks.probing.layer import ForeignLayer
from normlab.checks.probing.state import preserve_buffers

Function = Callable[[Tensor], Tensor]

# name -> the function, and its layer under `torch.nn`
FUNCTIONS: dict[str, tuple[Function, str]] = {
    "relu": (F.relu, "ReLU()"),
    "silu": (F.silu, "SiLU()"),
    "gelu": (F.gelu, "GELU()"),
    "gelu_tanh": (lambda t: F.gelu(t, approximate="tanh"), "GELU(approximate='tanh')"),
    "hardswish": (F.hardswish, "Hardswish()"),
    "mish": (F.mish, "Mish()"),
    "elu": (F.elu, "ELU()"),
    "softplus": (F.softplus, "Softplus()"),
}
# a bias so large that these functions pass everything on, and float32 keeps six digits
_LIFT = 48.0


@dataclass(frozen=True)
class FunctionBehind:
    """A pointwise function after a norm."""

    name: str  #: "relu", "silu" and so on
    function: Function  #: of a tensor
    layer: str | None  #: its layer under `torch.nn`, or None


def _lifted(bias: str | Tensor) -> Callable[[Any, Tensor], Tensor]:
    """With so large a bias, functions such as relu return their input; it is subtracted again."""

    def call(layer: Any, x: Tensor) -> Tensor:
        tensor = layer.get_parameter(bias) if isinstance(bias, str) else bias
        with preserve_buffers([], [tensor]):
            tensor.add_(_LIFT)
            return layer(x) - _LIFT

    return call


def _odd(layer: Any, x: Tensor) -> Tensor:
    """Of t · gate(t) with gate(t) + gate(-t) = 1, the difference of two opposite inputs is t."""
    return layer(x) - layer(-x)


def without_function(original: ForeignLayer, layer: ForeignLayer) -> Iterator[ForeignLayer]:
    """The layer without the function at its end, by each way that may remove it.

    `original` is wrapped; `layer` is the same in the dtype of the probing.
    """
    x = layer.input(8)
    for name, tensor in layer.tensors.items():
        kept = tensor.detach().clone()
        results = []
        try:
            with preserve_buffers([], [tensor]):
                for k in (1, 2):
                    tensor.copy_(kept + k * 1024.0)
                    results.append(layer.measure(x))
        except Exception:  # a layer may refuse a value in any way
            continue
        rise = results[1] - results[0] - 1024.0
        if float(rise.abs().max()) <= 1e-2:  # one more in the bias is one more in each output
            yield original.wrapped(_lifted(name if original.copies else original.tensors[name]))
    yield original.wrapped(_odd)


def with_function(layer: ForeignLayer) -> ForeignLayer:
    """A copy of a layer that :func:`without_function` gave, with its function again."""
    fresh = layer.fresh()
    assert isinstance(fresh.function, Wrapped)
    if not layer.copies:
        fresh.function = copy.copy(fresh.function)
    fresh.function.how = operator.call
    return fresh


def name_function(layer: ForeignLayer) -> FunctionBehind | None:
    """Which function it is: compare what comes before it with what comes after."""
    whole = with_function(layer)
    before, after = [], []
    for seed in (91, 92, 93):
        x = 1.5 * layer.input(seed)
        before.append(layer.measure(x).flatten())
        after.append(whole.measure(x).flatten())
    t, y = torch.cat(before), torch.cat(after)
    exact = layer.dtype in (torch.float64, torch.float32)
    tolerance = (1e-5 if exact else 3e-2) * max(1.0, float(t.abs().max()))
    for name, (function, constructor) in FUNCTIONS.items():
        if float((function(t) - y).abs().max()) <= tolerance:
            return FunctionBehind(name, function, constructor)
    negative = t < -0.1
    if bool(negative.any()):
        slope = float((y[negative] / t[negative]).median())
        if float((F.leaky_relu(t, slope) - y).abs().max()) <= tolerance:
            short = float(f"{slope:.4g}")
            constructor = "LeakyReLU()" if short == 0.01 else f"LeakyReLU({short})"
            return FunctionBehind("leaky_relu", lambda t: F.leaky_relu(t, short), constructor)
    raised = y > t + tolerance
    if bool((y >= t - tolerance).all()) and bool(raised.any()):
        floor = y.view(3, *layer.shape).amin([0, 1, *range(3, len(layer.shape) + 1)])
        view = [1, 1, -1, *([1] * (len(layer.shape) - 2))]
        limits = floor.view(view).expand(3, *layer.shape).flatten()
        if float((torch.maximum(t, limits) - y).abs().max()) <= tolerance:
            return FunctionBehind("threshold", lambda t: t, None)
    return None
