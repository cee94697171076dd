"""Wraps any layer: calls it with inputs of one shape, and restores its state."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.probing.arguments import Wrapped, pick
from normlab.checks.probing.state import (
    check_is_ready,
    copy_module,
    preserve_buffers,
    preserve_state,
)

WRAP_IT = (
    "Say which part of it counts: wrap it, a function as `lambda *args: layer(*args)[0]`, a module "
    "in one whose forward returns `layer(x)[0]`"
)


class NoNorm(Exception):
    """It is none of the norms that can be named; the text says why."""


def make_input(shape: Sequence[int], seed: int) -> Tensor:
    """Normal numbers in float64 that depend on nothing but the arguments."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(tuple(shape), generator=g, dtype=torch.float64)


def _move(tensor: Tensor, seed: int) -> None:
    """Add numbers between 0.5 and 1.5."""
    g = torch.Generator().manual_seed(seed)
    move = torch.rand(tensor.shape, generator=g, dtype=torch.float64) + 0.5
    tensor.copy_((tensor.detach().cpu().double() + move).to(tensor.dtype))


def _captured(function: Any) -> Iterator[tuple[str, Any]]:
    """Values that a function uses besides its arguments: closed over, bound, global, defaults."""
    if isinstance(function, functools.partial):
        yield from ((str(k), v) for k, v in enumerate(function.args))
        yield from function.keywords.items()
        for inner in (*function.args, *function.keywords.values()):
            if inspect.isfunction(inner):
                yield from _captured(inner)
        function = function.func
    if inspect.ismethod(function):
        yield "self", function.__self__
        if not isinstance(function.__self__, nn.Module):
            yield from getattr(function.__self__, "__dict__", {}).items()
        function = function.__func__
    if inspect.isfunction(function):
        variables = inspect.getclosurevars(function)
        yield from {**variables.globals, **variables.nonlocals}.items()
        yield from ((f"default {k}", v) for k, v in enumerate(function.__defaults__ or ()))
    elif not isinstance(function, nn.Module):
        yield from getattr(function, "__dict__", {}).items()


class ForeignLayer:
    """A layer, called with inputs of one shape and dtype; its buffers are put back after a call.

    Attributes:
        function: takes a tensor.
        modules: those that `function` uses; their mode is switched.
        shape: of the inputs.
        closure_tensors: those that a function closes over, by name.
        tensors: these, and floating parameters, by name.
        dtype: of the inputs.
        device: of the inputs.
        copies: whether the one module can be copied.
        result: keys that lead to the tensor that counts, where a call returns more.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Any],
        modules: Sequence[nn.Module],
        shape: Sequence[int],
        closure_tensors: dict[str, Tensor] | None = None,
        dtype: torch.dtype = torch.float32,
        *,
        copies: bool = False,
        result: tuple[Any, ...] = (),
    ):
        self.function = function
        self.result = result
        self.copies = copies
        self.modules = list(modules)
        self.shape = tuple(shape)
        self.closure_tensors = closure_tensors or {}
        self.dtype = dtype
        self.tensors = dict(self.closure_tensors)
        for k, module in enumerate(self.modules):
            prefix = f"{k}." if len(self.modules) > 1 else ""
            named = {f"{prefix}{n}": p for n, p in module.named_parameters()}
            self.tensors |= {n: p for n, p in named.items() if p.is_floating_point()}
        buffers = (b for module in self.modules for b in module.buffers())
        first = next(iter((*self.tensors.values(), *buffers)), None)
        self.device = torch.device("cpu") if first is None else first.device

    @classmethod
    @contextlib.contextmanager
    def open(cls, layer: Callable[[Tensor], Any], shape: Sequence[int]) -> Iterator[ForeignLayer]:
        """Prepare a module or a function, and leave it, and the random streams, as they were.

        A module is copied. What cannot be copied, and the modules and tensors that a function
        closes over, are used as they are and put back at the end.

        Raises:
            TypeError: `layer` is a class, or cannot be called.
        """
        if isinstance(layer, type):
            raise TypeError(f"layer: got the class {layer.__name__}; construct it first")
        if not callable(layer):
            raise TypeError(f"layer: got {layer!r}; expected a module or a function of one tensor")
        modules: list[nn.Module] = []
        closure_tensors: dict[str, Tensor] = {}
        copies = False
        if isinstance(layer, nn.Module):
            check_is_ready("layer", layer)
            with contextlib.suppress(Exception):  # a module may refuse to be copied
                layer, copies = copy_module(layer), True
            modules = [layer]
        else:
            for name, value in _captured(layer):
                if isinstance(value, nn.Module):
                    modules.append(value)
                elif isinstance(value, Tensor) and value.is_floating_point():
                    closure_tensors[name] = value
        device = next((p.device.type for m in modules for p in m.parameters()), "cpu")
        with (
            warnings.catch_warnings(),
            torch.no_grad(),
            torch.autocast(device, enabled=False),
            preserve_state(modules, list(closure_tensors.values())),
        ):
            warnings.simplefilter("ignore")
            yield cls(layer, modules, shape, closure_tensors, copies=copies)

    def __call__(self, x: Tensor, *, training: bool = True, keep: bool = False) -> Any:
        """What the layer returns for `x`.

        Args:
            x: converted to this layer's dtype.
            training: mode of the modules.
            keep: leave the buffers as the call has made them.
        """
        for module in self.modules:
            module.train(training)
        given = x.to(self.device, self.dtype, copy=True)
        if keep:
            return pick(self.function(given), self.result)
        with preserve_buffers(self.modules, list(self.closure_tensors.values())):
            return pick(self.function(given), self.result)

    def input(self, seed: int) -> Tensor:
        """An input of this layer's shape, in float64."""
        return make_input(self.shape, seed)

    def measure(self, x: Tensor, *, training: bool = True) -> Tensor:
        """The output in float64, on the CPU."""
        return self(x, training=training).detach().to("cpu", torch.float64)

    def odd_even_parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Odd and even part of the output: of a norm, what the weight scales and what is added."""
        plus, minus = self.measure(x), self.measure(-x)
        return (plus - minus) / 2, (plus + minus) / 2

    def refusal(self, shape: Sequence[int]) -> str:
        """Why an input of this shape does not give one tensor of the same shape; "" if it does."""
        shape = tuple(shape)
        try:
            y = self(make_input(shape, 1))
        except Exception as error:  # a layer may refuse a shape in any way
            return f"{type(error).__name__} for an input of shape {shape}: {error}"
        if isinstance(y, Tensor) and y.shape == shape and y.is_floating_point():
            return ""
        if not isinstance(y, Tensor):
            kind = type(y).__name__
            return f"the output for an input of shape {shape} is a {kind}. {WRAP_IT}"
        got = f"the output for an input of shape {shape} has shape {tuple(y.shape)}, {y.dtype}"
        return f"{got}; that of a norm has floating numbers and the input's shape"

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether an input of this shape gives one tensor of the same shape."""
        return not self.refusal(shape)

    def with_shape(self, shape: Sequence[int]) -> ForeignLayer:
        """The same layer, called with another shape."""
        other = copy.copy(self)
        other.shape = tuple(shape)
        return other

    def fresh(self) -> ForeignLayer:
        """A copy in the dtype that the parameters have."""
        if not self.copies:
            return self.with_shape(self.shape)
        module = copy_module(self.modules[0])
        return ForeignLayer(
            module, [module], self.shape, dtype=self.dtype, copies=True, result=self.result
        )

    def at(self, dtype: torch.dtype) -> ForeignLayer:
        """A copy that takes inputs of another dtype; a plain function stays what it is."""
        other = self.fresh()
        for module in other.modules if self.copies else []:
            module.to(dtype)
        other.dtype = dtype
        return other

    def wrapped(self, how: Callable[[Callable[..., Any], Tensor], Any]) -> ForeignLayer:
        """The layer with something done before or after it: `how(layer, x)`."""
        layer = Wrapped(self.function, how)
        modules = [layer] if self.copies else self.modules
        return ForeignLayer(
            layer, modules, self.shape, self.closure_tensors, self.dtype, copies=self.copies
        )

    def values(self) -> dict[str, Tensor]:
        """What the parameters hold."""
        return {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    def assign(self, values: dict[str, Tensor]) -> None:
        """Give the parameters these values."""
        for name, value in values.items():
            self.tensors[name].copy_(value)

    def randomize(self) -> None:
        """Move all weights and biases away from 0 and 1, which would hide what they do."""
        for tensor in self.tensors.values():
            if tensor.numel() > 1:
                _move(tensor, 5)

    @contextlib.contextmanager
    def moved(self, name: str) -> Iterator[Tensor]:
        """One parameter moved by about 1; gives by how much."""
        tensor = self.tensors[name]
        before = tensor.detach().clone()
        with preserve_buffers([], [tensor]):
            _move(tensor, 7)
            yield (tensor.double() - before.double()).cpu()
