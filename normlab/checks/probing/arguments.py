"""Where the tensors are among the arguments and in the output of a call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Slot = int | str
Path = tuple[Any, ...]

# names under which an input is usually passed, before any other
INPUTS = ("input", "x", "hidden_states", "inputs", "hidden_state")


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
    for name in (*INPUTS, *kwargs):
        if isinstance(kwargs.get(name), Tensor):
            return name, kwargs[name]
    return None


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call, in one of whose places a tensor is put."""

    slot: Slot  #: position or name of that tensor
    args: tuple[Any, ...] = (None,)  #: positional ones; what is in the slot is not used
    named: Mapping[str, Any] = field(default_factory=dict)  #: those by name, without the slot

    @classmethod
    def without(cls, slot: Slot, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """All but the argument at `slot`."""
        if isinstance(slot, int):
            return cls(slot, (*args[:slot], None, *args[slot + 1 :]), dict(kwargs))
        return cls(slot, tuple(args), {k: v for k, v in kwargs.items() if k != slot})

    @property
    def plain(self) -> bool:
        """Whether the tensor is the only argument, and positional."""
        return self.slot == 0 and len(self.args) == 1 and not self.named


class _Held(str):
    """Name of a stored tensor, in its place among the arguments."""


def _replaced(value: Any, kind: type, by: Callable[[Any], Any]) -> Any:
    """Replace every value of one type, also inside of tuples, lists and dicts."""
    if isinstance(value, kind):
        return by(value)
    if type(value) is dict:
        return {k: _replaced(v, kind, by) for k, v in value.items()}
    if type(value) is tuple:
        return tuple(_replaced(v, kind, by) for v in value)
    return [_replaced(v, kind, by) for v in value] if isinstance(value, list) else value


class OneTensor(nn.Module):
    """A call as a module of one tensor: further arguments are buffers, one result is picked."""

    def __init__(self, function: Callable[..., Any], arguments: Arguments, result: Path = ()):
        super().__init__()
        self.function, self.slot, self.result = function, arguments.slot, result

        def keep(tensor: Tensor) -> _Held:
            name = f"argument_{len(self._parameters) + len(self._buffers)}"
            copied = tensor.detach().clone()
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, nn.Parameter(copied))
            else:
                self.register_buffer(name, copied)
            return _Held(name)

        given = list(arguments.args), dict(arguments.named)
        self.args, self.named = _replaced(given, Tensor, keep)

    def forward(self, x: Tensor) -> Any:
        """Call it again with `x`."""
        given = _replaced((self.args, self.named), _Held, lambda name: getattr(self, name))
        given[isinstance(self.slot, str)][self.slot] = x
        return pick(self.function(*given[0], **given[1]), self.result)

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


class Wrapped(nn.Module):
    """A layer with something done before or after it: `how(layer, x)`."""

    def __init__(self, layer: Callable[..., Any], how: Callable[[Callable[..., Any], Tensor], Any]):
        super().__init__()
        self.layer, self.how = layer, how

    def forward(self, x: Tensor) -> Any:
        """The output of `how`."""
        return self.how(self.layer, x)
