"""Where a model divides by a statistic of its own input, whatever functions it is written with.

Every operator that a model runs is seen, also those of a scripted function. Of each tensor it is
known which *values* its entries are computed from, entry by entry; what takes a statistic of such
values (a sum, a largest entry, a product of a tensor with itself) makes a new value that depends
on them. Where the entries of a dividend are among those that its divisor is a statistic of,
something is normalized.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from normlab.checks.inspection.foreign import REFUSALS, read_entries
from normlab.checks.probing.arguments import tensors_in

# What fills a tensor uses nothing of what was in it.
_FILLED = {"fill", "zero", "normal", "uniform", "bernoulli", "random"}
# Not pointwise, and each entry of the output is an entry of an input.
_MOVED = {
    *("_to_copy", "_unsafe_view", "cat", "constant_pad_nd", "copy", "flip", "gather", "index"),
    *("index_put", "index_select", "masked_fill", "masked_scatter", "masked_select", "repeat"),
    *("native_dropout", "pixel_shuffle", "pixel_unshuffle", "roll", "scatter", "select_scatter"),
    *("slice_scatter", "stack", "take", "tril", "triu", "upsample_nearest1d", "upsample_nearest2d"),
}
# Shares of a whole: what is divided by their sum is a distribution, and no norm.
_SHARES = {"exp", "exp2", "sigmoid", "softplus", "_softmax", "_safe_softmax"}
_SUMS = {"sum", "scatter_add", "scatter_reduce", "index_add"}
_STAY_SHARES = _MOVED | {"add", "mul", "div", "where", "clamp", "clamp_min", "topk", "sort"}
# Operators that normalize by themselves.
_NORMALIZE = {
    *("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit"),
    *("_native_batch_norm_legit_functional", "_batch_norm_with_update", "_fused_rms_norm"),
    *("_weight_norm_interface", "_weight_norm", "renorm", "embedding_renorm"),
}
_NONE: frozenset[int] = frozenset()
_NOT_OF_MODELS = tuple(f"{Path(file).parent}{os.sep}" for file in (torch.__file__, __file__))
_RUN = "run_once"  # that calls a model


@dataclass
class Division:
    """A module that divides by a statistic of what it divides."""

    name: str  #: path of the module, and the operator that took the statistic
    owner: str  #: path of the module
    of_weights: bool  #: a parameter is divided, not what flows through the model
    lines: list[str] = field(default_factory=list)  #: of source, as "file.py:12"


@dataclass(frozen=True)
class _Origin:
    """What the entries of a tensor are computed from."""

    values: frozenset[int]  #: at the same place
    inverted: frozenset[int] = _NONE  #: those of them that it is divided by
    shares: bool = False  #: whether they are shares of a whole
    logarithm: int = 0  #: 1 of a logarithm, -1 of its negative, whose exponential divides


class Divisions(TorchDispatchMode):
    """While it is active, notes all divisions by a statistic of the dividend.

    Args:
        model: its parameters are weights.
        example: all tensors that it is called with.
        owners: the last is the path of the module that runs.
    """

    supports_higher_order_operators = True

    def __init__(self, model: nn.Module, example: Iterable[Tensor], owners: list[str]):
        super().__init__()
        self.found: dict[str, Division] = {}
        self.hidden = 0  #: above zero while a function runs that is known to normalize
        self._owners = owners
        self._numbers = itertools.count()
        self._origins = WeakTensorKeyDictionary()
        self._items: dict[float, _Origin] = {}  # of numbers that were taken out of a tensor
        self._sources: dict[int, frozenset[int]] = {}  # of a statistic, the values it is taken of
        self._operators: dict[int, str] = {}  # of a statistic, what took it
        self._weights: set[int] = set()  # what is computed from parameters and constants alone
        self._counts: set[int] = set()  # tokens and masks, of which sums are counts
        for parameter in model.parameters():
            self._weights |= self._new(parameter)
        signals = 0
        for tensor in example:
            values = self._new(tensor)
            if _is_whole(tensor) and not (tensor.is_floating_point() and signals == 0):
                self._counts |= values
            signals += tensor.is_floating_point()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler for this, which takes a second

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if isinstance(func, torch._ops.OpOverload):
            self._follow(func, args, kwargs, result)
        return result

    def _new(self, tensor: Tensor) -> frozenset[int]:
        values = frozenset([next(self._numbers)])
        self._origins[tensor] = _Origin(values)
        return values

    def _of(self, value: Any) -> _Origin | None:
        if isinstance(value, Tensor):
            return self._origins.get(value)
        return self._items.get(value) if isinstance(value, float) else None

    def _follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = func.overloadpacket.__name__
        name = name if name.startswith("_") else name.rstrip("_")
        given = [tensor for _, tensor in tensors_in((args, kwargs))]
        known = [origin for tensor in given if (origin := self._of(tensor)) is not None]
        if not known or name in _FILLED or name.endswith("_like") or name.startswith("new_"):
            return
        is_view = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
        if torch.Tag.pointwise in func.tags or is_view or name in _MOVED:
            origin = self._pointwise(name, args, known)
        elif name in _NORMALIZE:
            if _takes_statistics(func, args):
                self._note(name, of_weights=self._all_weights(known[:1]))
            origin = _Origin(self._fresh(name, known[:1]))
        elif name == "_local_scalar_dense":
            self._items[result] = known[0]
            return
        else:
            origin = self._mixed(name, known)
        measured = any(tensor.is_floating_point() or tensor.is_complex() for tensor in given)
        for _, tensor in tensors_in(result):
            whole = not (tensor.is_floating_point() or tensor.is_complex())
            if tensor.dtype != torch.bool and not (whole and measured):  # places and ranks
                self._origins[tensor] = origin
                base = tensor._base
                if base is not None and func._schema.is_mutable:
                    before = self._of(base)
                    self._origins[base] = _Origin(
                        origin.values | (before.values if before else _NONE)
                    )

    def is_of_weights(self, tensor: Tensor) -> bool:
        """Whether a tensor is computed from parameters and constants alone."""
        origin = self._of(tensor)
        return origin is not None and self._all_weights([origin])

    def _all_weights(self, origins: list[_Origin]) -> bool:
        return all(origin.values <= self._weights for origin in origins)

    def _fresh(
        self, name: str, of: list[_Origin], sources: frozenset[int] = _NONE
    ) -> frozenset[int]:
        """A new value; a statistic, where it has sources."""
        number = next(self._numbers)
        if self._all_weights(of):
            self._weights.add(number)
        self._operators[number] = name
        self._sources[number] = sources
        return frozenset([number])

    def _pointwise(self, name: str, args: Any, known: list[_Origin]) -> _Origin:
        first, second, third = (self._of(arg) for arg in (*args, None, None, None)[:3])
        inverted = _NONE.union(*(origin.inverted for origin in known))
        dividend, divided = first, _NONE
        if name == "div" and second is not None:
            divisors = self._statistics(second) - second.inverted
            divided = self._divided(first, divisors)
            inverted = (first.inverted if first else _NONE) | divisors
        elif name == "addcdiv" and third is not None:
            dividend, divided = second, self._divided(second, self._statistics(third))
        elif name == "mul" and first is not None and second is not None:
            divided = self._divided(first, second.inverted)
            if not divided:
                dividend, divided = second, self._divided(second, first.inverted)
        elif _inverts(name, args, known[0]):
            inverted = self._statistics(known[0])
        if divided and dividend is not None:
            self._note(self._operators[max(divided)], of_weights=self._all_weights([dividend]))
            return _Origin(self._fresh(name, known))  # what was normalized starts anew
        one_shares = [origin.shares for origin in known].count(True) == 1
        return _Origin(
            _NONE.union(*(origin.values for origin in known)),
            inverted,
            name in _SHARES or (name in _STAY_SHARES and one_shares),
            _logarithm(name, args, known),
        )

    def _mixed(self, name: str, known: list[_Origin]) -> _Origin:
        """Origin of an output whose entries depend on several entries of an input."""
        for one, other in itertools.permutations(known, 2):
            if divided := self._divided(one, other.inverted):
                self._note(self._operators[max(divided)], of_weights=self._all_weights([one]))
                return _Origin(self._fresh(name, known))
        pairs = itertools.combinations(known, 2)
        related = len(known) == 1 or any(one.values & other.values for one, other in pairs)
        of_shares = name in _SHARES or (name in _SUMS and any(one.shares for one in known))
        sources = _NONE
        if related and not of_shares:
            sources = sources.union(*(self._all_sources(origin) for origin in known))
        values = self._fresh(name, known, sources)
        inverse = "inv" in name or any(origin.inverted for origin in known)
        stay = name in _SHARES or (known[0].shares and name in _STAY_SHARES)
        return _Origin(values, values if inverse and sources else _NONE, stay)

    def _statistics(self, origin: _Origin) -> frozenset[int]:
        return frozenset(v for v in origin.values if self._sources.get(v))

    def _all_sources(self, origin: _Origin) -> frozenset[int]:
        sources = origin.values.union(*(self._sources.get(v, _NONE) for v in origin.values))
        return sources - self._counts

    def _divided(self, dividend: _Origin | None, divisors: frozenset[int]) -> frozenset[int]:
        """Those divisors that are a statistic of the dividend."""
        if dividend is None:
            return _NONE
        return frozenset(d for d in divisors if self._sources.get(d, _NONE) & dividend.values)

    def _note(self, operator: str, *, of_weights: bool) -> None:
        if self.hidden:
            return
        owner = self._owners[-1] if self._owners else ""
        name = f"{owner}.{operator}()" if owner else f"{operator}()"
        division = self.found.setdefault(name, Division(name, owner, of_weights))
        division.of_weights &= of_weights
        line = _line_of_source(sys._getframe())
        if line not in division.lines:
            division.lines.append(line)


def _is_whole(tensor: Tensor) -> bool:
    """Whether it holds tokens, positions, or a mask, and no measurements."""
    if tensor.is_floating_point():
        try:
            held = read_entries(tensor)
        except REFUSALS:
            return False
        return bool(((held == 0) | (held == 1)).all())
    return tensor.dtype != torch.uint8 and not tensor.is_complex()


def _takes_statistics(func: Any, args: Any) -> bool:
    """Whether an operator that normalizes takes a mean now, or uses one of training."""
    names = [argument.name for argument in func._schema.arguments]
    return "training" not in names or bool(args[names.index("training")])


def _is_negative(exponent: Any) -> bool:
    return isinstance(exponent, int | float) and exponent < 0


def _inverts(name: str, args: Any, origin: _Origin) -> bool:
    if name in ("exp", "exp2"):
        return origin.logarithm < 0
    return name in ("rsqrt", "reciprocal") or (name == "pow" and _is_negative(args[1]))


def _logarithm(name: str, args: Any, known: list[_Origin]) -> int:
    if name in ("log", "log2"):
        return 1
    negative = name == "neg" or (name in ("mul", "div") and any(map(_is_negative, args)))
    return (-1 if negative else 1) * (known[0].logarithm if len(known) == 1 else 0)


def _line_of_source(frame: FrameType | None) -> str:
    """The innermost line of the model, as "file.py:12"; one of torch, where there is no other."""
    inside = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_NOT_OF_MODELS[1]) and frame.f_code.co_name == _RUN:
            break
        if not file.startswith(_NOT_OF_MODELS):
            return f"{Path(file).name}:{frame.f_lineno}"
        if "nn" in Path(file).parts and not inside:
            inside = f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return inside or "unknown"
