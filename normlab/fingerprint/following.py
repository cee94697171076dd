"""A function of each output that follows a norm: taken away for the probing, then named."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab.probing.probe import Probe
from normlab.probing.state import preserve_buffers

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


class BeforeFunction(nn.Module):
    """A layer without the function at its end, by one of two ways.

    "lift": with a larger bias, such a function gives what it gets; the bias is taken off again.
    "odd": of t · gate(t) with gate(t) + gate(-t) = 1, the difference of two opposite inputs is t.
    """

    def __init__(
        self, inner: Callable[[Tensor], Any], way: Literal["lift", "odd"], bias: Tensor | str = ""
    ):
        super().__init__()
        self.inner = inner
        self.way = way
        self.bias = bias if isinstance(bias, str) else [bias]  # a list keeps it unregistered
        self.active = True
        self.size = _LIFT

    def _bias(self) -> Tensor:
        if isinstance(self.bias, str):
            assert isinstance(self.inner, nn.Module)
            return self.inner.get_parameter(self.bias)
        return self.bias[0]

    def forward(self, x: Tensor) -> Any:
        """What comes before the function; after it, where `active` is off."""
        if not self.active:
            return self.inner(x)
        if self.way == "odd":
            return self.inner(x) - self.inner(-x)
        bias = self._bias()
        with preserve_buffers([], [bias]):
            with torch.no_grad():
                bias.add_(self.size)
            return self.inner(x) - self.size


@dataclass(frozen=True)
class Following:
    """A function that follows a norm."""

    name: str  #: "relu", "silu" and so on
    function: Function  #: of a tensor
    layer: str | None  #: its layer under `torch.nn`, or None


def _wrapped(probe: Probe, way: Literal["lift", "odd"], bias: str = "") -> Probe:
    if probe.copies:
        layer = BeforeFunction(probe.call, way, bias)
        return Probe(layer, [layer], probe.shape, dtype=probe.dtype, copies=True)
    tensor: Tensor | str = probe.tensors[bias] if bias else ""
    layer = BeforeFunction(probe.call, way, tensor)
    return Probe(layer, probe.modules, probe.shape, probe.loose, probe.dtype)


def without_function(original: Probe, probe: Probe) -> Iterator[Probe]:
    """The layer without a function at its end, in every way in which that can be had.

    The original has parameters of their own dtype, the probe those in which it can be called.
    """
    x = probe.input(8)
    for name, tensor in probe.tensors.items():
        kept = tensor.detach().clone()
        results = []
        try:
            with preserve_buffers([], [tensor]):
                for k in (1, 2):
                    tensor.copy_(kept + k * 1024.0)
                    results.append(probe.measure(x))
        except Exception:  # a layer may refuse a value in any way
            continue
        rise = results[1] - results[0] - 1024.0
        if float(rise.abs().max()) <= 1e-2:  # one more in the bias is one more in each output
            yield _wrapped(original, "lift", name)
    yield _wrapped(original, "odd")


def bare(probe: Probe) -> Probe:
    """A copy of the layer with its function, where that was taken away."""
    fresh = probe.fresh()
    if isinstance(fresh.call, BeforeFunction):
        if not probe.copies:
            fresh.call = copy.copy(fresh.call)
        fresh.call.active = False
    return fresh


def name_function(probe: Probe) -> Following | None:
    """Which function follows: compare what comes before it with what comes after."""
    whole = bare(probe)
    before, after = [], []
    for seed in (91, 92, 93):
        x = 1.5 * probe.input(seed)
        before.append(probe.measure(x).flatten())
        after.append(whole.measure(x).flatten())
    t, y = torch.cat(before), torch.cat(after)
    exact = probe.dtype in (torch.float64, torch.float32)
    tolerance = (1e-5 if exact else 3e-2) * max(1.0, float(t.abs().max()))
    for name, (function, layer) in FUNCTIONS.items():
        if float((function(t) - y).abs().max()) <= tolerance:
            return Following(name, function, layer)
    negative = t < -0.1
    if bool(negative.any()):
        slope = float((y[negative] / t[negative]).median())
        if float((F.leaky_relu(t, slope) - y).abs().max()) <= tolerance:
            short = float(f"{slope:.4g}")
            return Following(
                "leaky_relu",
                lambda t: F.leaky_relu(t, short),
                "LeakyReLU()" if short == 0.01 else f"LeakyReLU({short})",
            )
    raised = y > t + tolerance
    if bool((y >= t - tolerance).all()) and bool(raised.any()):
        floor = y.view(3, *probe.shape).amin([0, 1, *range(3, len(probe.shape) + 1)])
        view = [1, 1, -1, *([1] * (len(probe.shape) - 2))]
        limits = floor.view(view).expand(3, *probe.shape).flatten()
        if float((torch.maximum(t, limits) - y).abs().max()) <= tolerance:
            return Following("threshold", lambda t: t, None)
    return None
