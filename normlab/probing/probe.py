"""A layer that is called many times and comes out as it went in."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normlab.probing.arguments import pick
from normlab.probing.state import copy_module, preserve_buffers


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


class Probe:
    """A layer, called with inputs of one shape and dtype; its buffers are put back after a call.

    Attributes:
        call: takes a tensor.
        modules: those that `call` uses; their mode is switched.
        shape: of the inputs.
        loose: tensors that a function closes over, by name.
        tensors: these, and floating parameters, by name.
        dtype: of the inputs.
        device: of the inputs.
        copies: whether the one module can be copied.
        result: keys that lead to the tensor that counts, where a call returns more.
    """

    def __init__(
        self,
        call: Callable[[Tensor], Any],
        modules: Sequence[nn.Module],
        shape: Sequence[int],
        loose: dict[str, Tensor] | None = None,
        dtype: torch.dtype = torch.float32,
        *,
        copies: bool = False,
        result: tuple[Any, ...] = (),
    ):
        self.call = call
        self.result = result
        self.copies = copies
        self.modules = list(modules)
        self.shape = tuple(shape)
        self.loose = loose or {}
        self.dtype = dtype
        self.tensors = dict(self.loose)
        for k, module in enumerate(self.modules):
            prefix = f"{k}." if len(self.modules) > 1 else ""
            named = {f"{prefix}{n}": p for n, p in module.named_parameters()}
            self.tensors |= {n: p for n, p in named.items() if p.is_floating_point()}
        buffers = (b for module in self.modules for b in module.buffers())
        first = next(iter((*self.tensors.values(), *buffers)), None)
        self.device = torch.device("cpu") if first is None else first.device

    def __call__(self, x: Tensor, *, training: bool = True, keep: bool = False) -> Any:
        """What the layer returns for `x`.

        Args:
            x: converted to this probe's dtype.
            training: mode of the modules.
            keep: leave the buffers as the call has made them.
        """
        for module in self.modules:
            module.train(training)
        given = x.to(self.device, self.dtype, copy=True)
        if keep:
            return pick(self.call(given), self.result)
        with preserve_buffers(self.modules, list(self.loose.values())):
            return pick(self.call(given), self.result)

    def input(self, seed: int) -> Tensor:
        """An input of this probe's shape, in float64."""
        return make_input(self.shape, seed)

    def measure(self, x: Tensor, *, training: bool = True) -> Tensor:
        """The output in float64, on the CPU."""
        return self(x, training=training).detach().to("cpu", torch.float64)

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
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
            return (
                f"the output for an input of shape {shape} is a {type(y).__name__}; say which part "
                "of it counts, such as select='[0]'"
            )
        return f"the output for an input of shape {shape} is no floating tensor of this shape"

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether an input of this shape gives one tensor of the same shape."""
        return not self.refusal(shape)

    def with_shape(self, shape: Sequence[int]) -> Probe:
        """The same layer, called with another shape."""
        other = copy.copy(self)
        other.shape = tuple(shape)
        return other

    def fresh(self) -> Probe:
        """A copy in the dtype that the parameters have."""
        if not self.copies:
            return self.with_shape(self.shape)
        module = copy_module(self.modules[0])
        return Probe(
            module, [module], self.shape, dtype=self.dtype, copies=True, result=self.result
        )

    def at(self, dtype: torch.dtype) -> Probe:
        """A copy that takes inputs of another dtype; a plain function stays what it is."""
        probe = self.fresh()
        for module in probe.modules if self.copies else []:
            module.to(dtype)
        probe.dtype = dtype
        return probe

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
