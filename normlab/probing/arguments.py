"""Where the tensors are among the arguments and in the output of a call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Slot = int | str
Path = tuple[Any, ...]

# names under which an input is usually passed, before any other
_INPUTS = ("input", "x", "hidden_states", "inputs", "hidden_state")


def tensors_in(value: Any, path: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """All tensors in lists, tuples and mappings, with the keys that lead to them."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            yield from tensors_in(inside, (*path, key))
    elif isinstance(value, list | tuple):
        for key, inside in enumerate(value):
            yield from tensors_in(inside, (*path, key))
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        yield from tensors_in(dict(vars(value)), path)


def pick(value: Any, path: Path) -> Any:
    """What lies inside of lists, tuples, mappings and dataclasses under these keys."""
    for key in path:
        inside = isinstance(value, Mapping | list | tuple)
        value = value[key] if inside else getattr(value, key)
    return value


def first_tensor(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Slot, Tensor] | None:
    """The first tensor among the arguments: by position, else under a usual name, else any."""
    for k, value in enumerate(args):
        if isinstance(value, Tensor):
            return k, value
    for name in (*_INPUTS, *kwargs):
        if isinstance(kwargs.get(name), Tensor):
            return name, kwargs[name]
    return None


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call but one tensor."""

    slot: Slot  #: position or name of that tensor
    before: tuple[Any, ...] = ()  #: positional arguments in front of it
    after: tuple[Any, ...] = ()  #: positional arguments behind it
    named: tuple[tuple[str, Any], ...] = ()  #: arguments by name

    @classmethod
    def without(cls, slot: Slot, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """All but the argument at `slot`."""
        if isinstance(slot, int):
            return cls(slot, tuple(args[:slot]), tuple(args[slot + 1 :]), tuple(kwargs.items()))
        return cls(slot, tuple(args), (), tuple((k, v) for k, v in kwargs.items() if k != slot))

    @property
    def plain(self) -> bool:
        """Whether the tensor is the only argument, and positional."""
        return self.slot == 0 and not (self.before or self.after or self.named)

    @property
    def tensors(self) -> list[Tensor]:
        """The other tensors."""
        return [t for _, t in tensors_in((self.before, self.after, [v for _, v in self.named]))]

    def replaced(self, kind: type, by: Callable[[Any], Any]) -> Arguments:
        """The arguments with all of one kind in them replaced by others."""
        others = _replaced((self.before, self.after, self.named), kind, by)
        return Arguments(self.slot, *others)

    def call(self, function: Callable[..., Any], x: Tensor) -> Any:
        """The call again, with `x` in the place of the tensor."""
        named = dict(self.named)
        if isinstance(self.slot, str):
            return function(*self.before, **{self.slot: x}, **named)
        return function(*self.before, x, *self.after, **named)


@dataclass(frozen=True)
class _Held:
    """Stands for the tensor that a module holds."""

    name: str


def _replaced(value: Any, kind: type, by: Callable[[Any], Any]) -> Any:
    """The value with all of one kind in it, also in tuples and lists, replaced by others."""
    if isinstance(value, kind):
        return by(value)
    if type(value) is tuple:
        return tuple(_replaced(v, kind, by) for v in value)
    return [_replaced(v, kind, by) for v in value] if isinstance(value, list) else value


class OneTensor(nn.Module):
    """A call as a module of one tensor: further arguments are buffers, one result is picked."""

    def __init__(self, function: Callable[..., Any], arguments: Arguments, result: Path = ()):
        super().__init__()
        self.function = function
        self.result = result

        def keep(tensor: Tensor) -> _Held:
            name = f"argument_{len(self._parameters) + len(self._buffers)}"
            copy = tensor.detach().clone()
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, nn.Parameter(copy))
            else:
                self.register_buffer(name, copy)
            return _Held(name)

        self.arguments = arguments.replaced(Tensor, keep)

    def forward(self, x: Tensor) -> Any:
        """Call it again with `x`."""
        filled = self.arguments.replaced(_Held, lambda held: getattr(self, held.name))
        return pick(filled.call(self.function, x), self.result)

    @property
    def has_others(self) -> bool:
        """Whether it takes tensors besides the one."""
        return bool(self._buffers)

    def without_residual(self, shape: Sequence[int]) -> OneTensor | None:
        """A copy with zeros for arguments of this shape; None where there are none."""
        alike = [n for n, b in self.named_buffers(recurse=False) if b.shape == torch.Size(shape)]
        if not alike:
            return None
        other = copy.deepcopy(self)
        for name in alike:
            other.get_buffer(name).zero_()
        return other
