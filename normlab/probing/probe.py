"""A layer that is called many times and comes out as it went in."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["Subject", "open_subject", "preserve_state"]


class Subject:
    """One way to call a layer in one dtype; its state is put back after every call.

    Attributes:
        call: takes a tensor.
        modules: those that `call` uses; their mode is switched.
        tensors: floating parameters, and tensors that a function closes over, by name.
        dtype: of the inputs.
        device: of the inputs.
        copies: whether the one module can be copied.
    """

    def __init__(
        self,
        call: Callable[[Tensor], Any],
        modules: Sequence[nn.Module],
        loose: dict[str, Tensor],
        dtype: torch.dtype,
        *,
        copies: bool = False,
    ):
        self.call = call
        self.copies = copies
        self.modules = list(modules)
        self.loose = loose
        self.dtype = dtype
        self.tensors = dict(loose)
        for k, module in enumerate(self.modules):
            named = {f"{k}.{n}": p for n, p in module.named_parameters()}
            self.tensors |= {n: p for n, p in named.items() if p.is_floating_point()}
        first = next(iter(self._all_tensors()), None)
        self.device = torch.device("cpu") if first is None else first.device

    def _all_tensors(self) -> Iterator[Tensor]:
        yield from self.loose.values()
        for module in self.modules:
            yield from module.parameters()
            yield from module.buffers()

    def __call__(self, x: Tensor, *, training: bool = True, keep: bool = False) -> Any:
        """What the layer returns for `x`.

        Args:
            x: converted to this subject's dtype.
            training: mode of the modules.
            keep: leave the buffers as the call has made them.
        """
        for module in self.modules:
            module.train(training)
        given = x.to(self.device, self.dtype, copy=True)
        with contextlib.ExitStack() as stack:
            if not keep:
                stack.enter_context(_restored(self.modules, list(self.loose.values())))
            return self.call(given)

    def measure(self, x: Tensor, *, training: bool = True) -> Tensor:
        """The output in float64, on the CPU."""
        return self(x, training=training).detach().to("cpu", torch.float64)

    def fresh(self) -> Subject:
        """A copy in the dtype that the parameters have."""
        if not self.copies:
            return Subject(self.call, self.modules, self.loose, self.dtype)
        module = copy.deepcopy(self.modules[0])
        return Subject(module, [module], {}, self.dtype, copies=True)

    def at(self, dtype: torch.dtype) -> Subject:
        """A copy that takes inputs of another dtype; a plain function stays what it is."""
        if not self.copies:
            return Subject(self.call, self.modules, self.loose, dtype)
        module = self.fresh().modules[0].to(dtype)
        return Subject(module, [module], {}, dtype, copies=True)

    def values(self) -> dict[str, Tensor]:
        """What the parameters hold."""
        return {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    def assign(self, values: dict[str, Tensor]) -> None:
        """Give the parameters these values."""
        for name, value in values.items():
            self.tensors[name].copy_(value)

    def randomize(self) -> None:
        """Move all weights and biases away from 0 and 1, which would hide what they do."""
        g = torch.Generator().manual_seed(5)
        for tensor in self.tensors.values():
            if tensor.numel() > 1:
                move = torch.rand(tensor.shape, generator=g, dtype=torch.float64) + 0.5
                tensor.add_(move.to(tensor.device, tensor.dtype))


@contextlib.contextmanager
def _restored(modules: Sequence[nn.Module], tensors: Sequence[Tensor]) -> Iterator[None]:
    """Put back buffers and tensors, also those that a call replaces by new ones."""
    owners = [part for module in modules for part in module.modules()]
    buffers = [
        (part, name, old, None if old is None else old.clone())
        for part in owners
        for name, old in part._buffers.items()
    ]
    values = [t.detach().clone() for t in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for part, name, old, value in buffers:
                part._buffers[name] = old
                if old is not None and value is not None:
                    old.copy_(value)
            for t, v in zip(tensors, values, strict=True):
                t.copy_(v)


@contextlib.contextmanager
def preserve_state(modules: Sequence[nn.Module], tensors: Sequence[Tensor] = ()) -> Iterator[None]:
    """Put back modes, parameters, gradients and buffers, and all random streams.

    Args:
        modules: roots; everything below them is covered.
        tensors: further tensors.
    """
    owners = [part for module in modules for part in module.modules()]
    parameters = [
        (part, name, p, None if p is None else (p.data, p.data.clone(), p.requires_grad, p.grad))
        for part in owners
        for name, p in part._parameters.items()
    ]
    modes = [(part, part.training) for part in owners]
    streams = random.getstate(), np.random.get_state()  # noqa: NPY002 -- the global one is meant
    devices = sorted({p.device.index or 0 for m in modules for p in m.parameters() if p.is_cuda})
    with torch.random.fork_rng(devices=devices), _restored(modules, tensors):
        try:
            yield
        finally:
            for part, name, p, saved in parameters:
                part._parameters[name] = p
                if p is not None and saved is not None:
                    p.data = saved[0]
                    p.data.copy_(saved[1])
                    p.requires_grad_(saved[2])
                    p.grad = saved[3]
            for part, mode in modes:
                part.training = mode
            random.setstate(streams[0])
            np.random.set_state(streams[1])  # noqa: NPY002


def _captured(function: Any) -> Iterator[tuple[str, Any]]:
    """Values that a function uses besides its arguments: closed over, bound or global."""
    if isinstance(function, functools.partial):
        yield from ((str(k), v) for k, v in enumerate(function.args))
        yield from function.keywords.items()
        function = function.func
    if inspect.ismethod(function):
        yield "self", function.__self__
        if not isinstance(function.__self__, nn.Module):
            yield from getattr(function.__self__, "__dict__", {}).items()
        function = function.__func__
    if inspect.isfunction(function):
        variables = inspect.getclosurevars(function)
        yield from {**variables.globals, **variables.nonlocals}.items()
        yield from _defaults(function)
    elif not isinstance(function, nn.Module):
        yield from getattr(function, "__dict__", {}).items()


def _defaults(function: Any) -> Iterator[tuple[str, Any]]:
    """Default values of the arguments of a function."""
    yield from ((f"default {k}", v) for k, v in enumerate(function.__defaults__ or ()))


@contextlib.contextmanager
def open_subject(layer: Callable[[Tensor], Any]) -> Iterator[Subject]:
    """Prepare a layer for probing and leave it, and the random streams, as they were.

    A module is copied. What cannot be copied, and the modules and tensors that a function closes
    over, are used as they are and put back at the end.

    Args:
        layer: a module or a function of one tensor.

    Raises:
        TypeError: `layer` is a class, or cannot be called.
    """
    if isinstance(layer, type):
        raise TypeError(f"layer: got the class {layer.__name__}; construct it first")
    if not callable(layer):
        raise TypeError(f"layer: got {layer!r}; expected a module or a function of one tensor")
    modules: list[nn.Module] = []
    loose: dict[str, Tensor] = {}
    call: Callable[[Tensor], Any] = layer
    copies = False
    if isinstance(layer, nn.Module):
        with contextlib.suppress(Exception):  # a module may refuse; then the original is put back
            layer, copies = copy.deepcopy(layer), True
        call, modules = layer, [layer]
    else:
        for name, value in _captured(layer):
            if isinstance(value, nn.Module):
                modules.append(value)
            elif isinstance(value, Tensor) and value.is_floating_point():
                loose[name] = value
    device = next((p.device.type for m in modules for p in m.parameters()), "cpu")
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        torch.autocast(device, enabled=False),
        preserve_state(modules, list(loose.values())),
    ):
        warnings.simplefilter("ignore")
        yield Subject(call, modules, loose, torch.float32, copies=copies)
