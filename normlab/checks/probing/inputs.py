"""Which inputs does a layer take? Their dtype and shape, and the axes that it reduces."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.probing.arguments import pick, tensors_in
from normlab.checks.probing.layer import ForeignLayer, NoNorm
from normlab.checks.probing.names import find_attribute
from normlab.norms import NORMS, Case

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_LARGE = 50_000


def integers(name: str, given: Any, expected: str) -> tuple[int, ...]:
    """Sizes or axes as a tuple.

    Raises:
        ValueError: they are no integers; it names the argument.
    """
    try:
        if any(isinstance(number, bool) for number in given):
            raise TypeError
        return tuple(operator.index(number) for number in given)
    except TypeError:
        raise ValueError(f"{name}: got {given!r}; expected {expected}") from None


def sizes_of(shape: Any) -> tuple[int, ...]:
    """The shape of an input.

    Raises:
        TypeError: it is no sequence of integers.
        ValueError: a size is not positive.
    """
    try:
        found = integers("shape", shape, "the sizes of an input, such as (4, 16)")
    except ValueError as error:
        raise TypeError(str(error)) from None
    if not found:
        raise TypeError("shape: got (); expected the sizes of an input, such as (4, 16)")
    if min(found) < 1:
        raise ValueError(f"shape: got {shape!r}; sizes must be positive")
    return found


def choose_input(original: ForeignLayer) -> ForeignLayer:
    """The layer in the widest dtype that it takes, with a shape that shows most.

    Axes of size 1 are made larger and very large ones smaller, where the layer allows it.

    Raises:
        NoNorm: the output is no tensor of the input's shape.
        ValueError: every call fails.
    """
    error: Exception | None = None
    enlarged = tuple(max(size, 2) for size in original.shape)
    for dtype in _DTYPES:
        layer = original.at(dtype)
        for layer.shape in dict.fromkeys((enlarged, original.shape)):
            try:
                y = layer(layer.input(1))
            except Exception as raised:  # a layer may refuse an input in any way
                error = error if dtype != torch.float32 and error is not None else raised
                continue
            inside = [p for p, t in tensors_in(y) if p and t.shape == layer.shape]
            if inside:  # a residual may come back beside the output
                layer.result = original.result = inside[0]
                y = pick(y, layer.result)
            if isinstance(y, Tensor) and y.shape == layer.shape and y.is_floating_point():
                layer.shape = shorten(layer, range(len(layer.shape)))
                return layer
            if layer.shape == original.shape:
                raise NoNorm(layer.refusal(layer.shape))
    raise ValueError(
        f"layer: a call with an input of shape {original.shape} failed, in every dtype: "
        f"{type(error).__name__}: {error}. Pass the shape of an input that it takes, and "
        "wrap a layer that needs more than one argument: `lambda x: layer(x, other)`"
    )


def shorten(layer: ForeignLayer, axes: Iterable[int]) -> tuple[int, ...]:
    """Shorten very large axes where the layer accepts it."""
    shape = layer.shape
    for axis in axes:
        cut = (*shape[:axis], min(shape[axis], 4 + axis), *shape[axis + 1 :])
        if math.prod(shape) > _LARGE and layer.accepts(cut):
            shape = cut
    return shape


def _parameter_shape(
    module: nn.Module, like: str, parameter: Tensor | None
) -> tuple[int, ...] | None:
    trailing = NORMS[like].trailing
    if parameter is not None:
        if not trailing:
            return (parameter.numel(),)
        shape = list(parameter.shape)
        while len(shape) > 1 and shape[0] == 1:  # an axis of size 1 adds nothing to a mean
            shape.pop(0)
        return tuple(shape)
    for part in module.modules():
        if not trailing:
            size = find_attribute(part, "num_features")
            if size is not None:
                return (int(size),)
        else:
            declared = getattr(part, "normalized_shape", None)
            if isinstance(declared, int):
                return (declared,)
            if isinstance(declared, Sequence) and len(declared):
                return tuple(declared)
    if NORMS[like].parameters == "scalar":
        size = find_attribute(module, "normalized_shape")  # "dim" may be an axis, too
        return (int(size),) if size is not None and size > 0 else None
    return None


def _fits(parameter: Tensor | None, like: str, shape: tuple[int, ...]) -> bool:
    """Whether a module must take this shape, because its parameters can be broadcast against it."""
    axes = 1 if parameter is None else parameter.dim()
    if NORMS[like].trailing:
        return len(shape) >= axes
    if axes < 2:
        return True
    assert parameter is not None
    return len(shape) == axes + (parameter.shape[0] > 1)


def _candidates(like: str, parameter_shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], bool]]:
    """Shapes to try, each with whether the channels come first (of layer and RMS norm)."""
    size = parameter_shape[0]
    # no other axis is as long as the parameters, or a wrong axis could not be told
    a, b, c = [n for n in (5, 3, 4, 2, 7) if n not in parameter_shape][:3]
    norm = NORMS[like]
    if norm.trailing:
        first = [((b, size, a, c), True)]
        if len(parameter_shape) > 1 and set(parameter_shape[1:]) == {1}:
            return [*first, ((a, *parameter_shape), False)]
        trailing = [(lead + parameter_shape, False) for lead in ((a,), (b, a), (c, b, a))]
        return trailing + (first if len(parameter_shape) == 1 else [])
    shapes = [(6, size), (3, size, 7), (4, size, 6, 5), (2, size, 3, 4, 5)]
    if norm.needs_positions:
        # two axes would be one sample without its batch axis; so would three be of images
        shapes = shapes[:0:-1]
    return [(shape, False) for shape in shapes]


def _channels_first(
    layer: ForeignLayer, shape: tuple[int, ...], parameter_shape: tuple[int, ...]
) -> bool:
    trailing = shape[len(shape) - len(parameter_shape) :] == parameter_shape
    size = parameter_shape[0]
    if not set(parameter_shape[1:]) <= {1} or len(shape) < 3 or shape[1] != size:
        return False
    # where both fit, a longer last axis tells which it is
    return not trailing or layer.accepts((*shape[:-1], size + 1))


@dataclass(frozen=True)
class Declared:
    """The axes that a caller declares for a layer or RMS norm.

    Attributes:
        axis: over which statistics run, none negative.
        weight_shape: of weight and bias, broadcast from the right; () for none, None to infer it.
    """

    axis: tuple[int, ...]
    weight_shape: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls,
        like: str,
        shape: Sequence[int] | None,
        axis: int | Sequence[int] | None,
        weight_shape: Sequence[int] | None,
    ) -> Declared | None:
        """From the arguments of :func:`normlab.checks.check_layer`; None where there are none.

        Raises:
            ValueError: it names the argument.
        """
        given = {"axis": axis, "weight_shape": weight_shape}
        first = next((name for name, value in given.items() if value is not None), None)
        if first is None:
            return None
        if like not in NORMS or not NORMS[like].trailing:
            fits = ", ".join(name for name, norm in NORMS.items() if norm.trailing)
            raise ValueError(f"{first}: the axes of {like} are its own; it is said of {fits}")
        if shape is None:
            raise ValueError(f"{first}: is counted in the shape of an input; pass shape=, too")
        ndim, expected = len(shape), f"axes of an input of shape {(*shape,)}"
        several = axis if isinstance(axis, Iterable) else (-1 if axis is None else axis,)
        axes = integers("axis", several, expected)
        if not axes or not all(-ndim <= a < ndim for a in axes):
            raise ValueError(f"axis: got {axis!r}; expected {expected}")
        counted = tuple(sorted({a % ndim for a in axes}))
        if len(counted) < len(axes):
            raise ValueError(f"axis: got {axis!r}, which names an axis twice")
        expected = "sizes that broadcast from the right against the input's, such as (4, 1, 16)"
        view = None if weight_shape is None else integers("weight_shape", weight_shape, expected)
        if view is not None and not _broadcasts(view, tuple(shape)):
            raise ValueError(
                f"weight_shape: got {view}, which is not broadcast from the right against an "
                f"input of shape {(*shape,)}; write an axis of size 1 where it does not vary"
            )
        return cls(counted, view)

    def case(self, shape: tuple[int, ...], parameter: Tensor | None) -> Case:
        """The input of this shape.

        Raises:
            ParameterMismatch: the parameter has neither the shape that was declared nor one that
                fits the axes.
        """
        own = None if parameter is None else tuple(parameter.shape)
        view = self.weight_shape if own is None or self.weight_shape is not None else own
        if view is None:
            view = self._along(shape)
        elif self.weight_shape is None and view and self._fits_one(shape, view) is not None:
            view = self._along(shape, self._fits_one(shape, view))
        elif not _broadcasts(view, shape) or (own and math.prod(own) != math.prod(view)):
            raise ParameterMismatch(
                f"the parameters have shape {own}; for an input of shape {shape} and statistics "
                f"over axes {self.axis} they are expected to be broadcast as "
                f"{self.weight_shape or self._along(shape)}"
            )
        return Case(
            shape,
            view if own is None else own,
            normalized_ndim=len(self.axis),
            weight=bool(view),
            bias=bool(view),
            axis=self.axis,
            view=view,
        )

    def _along(self, shape: tuple[int, ...], axis: int | None = None) -> tuple[int, ...]:
        axes = self.axis if axis is None else (axis,)
        return tuple(size if a in axes else 1 for a, size in enumerate(shape))

    def _fits_one(self, shape: tuple[int, ...], own: tuple[int, ...]) -> int | None:
        """The one reduced axis that is as long as a parameter of one axis."""
        fitting = [a for a in self.axis if len(own) == 1 and shape[a] == own[0]]
        return fitting[0] if len(fitting) == 1 else None


def _broadcasts(view: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    sizes = zip(reversed(view), reversed(shape), strict=False)
    return len(view) <= len(shape) and all(n in (1, size) for n, size in sizes)


def _channel_view(shape: tuple[int, ...], parameter_shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1, *parameter_shape[:1], *(1 for _ in shape[2:]))


class ParameterMismatch(ValueError):
    """The parameters of a module do not fit the axes that a norm of its family would give them."""


def _check_fit(
    shape: tuple[int, ...], parameter_shape: tuple[int, ...], like: str, channels_first: bool
) -> None:
    axes = NORMS[like].parameter_shape(shape, len(parameter_shape))
    if channels_first:
        axes = shape[1:2]
    if axes != parameter_shape:
        raise ParameterMismatch(
            f"the parameters have shape {parameter_shape}; for an input of shape {shape} a "
            f"{like} has parameters of shape {axes}"
        )


def _per_index(
    own: tuple[int, ...], shape: Sequence[int] | None
) -> tuple[Sequence[int] | None, Declared | None]:
    """Of parameters such as (heads, 1, features), an input that they fit, and the last axis.

    A norm over all of these axes would have no parameter of size 1 along one of them.
    """
    while len(own) > 1 and own[0] == 1:
        own = own[1:]
    if 1 not in own[1:-1] or own[-1] == 1:
        return shape, None
    if shape is None:
        a, b = [n for n in (5, 3, 4, 2, 7) if n not in own][:2]
        shape = (b, *(a if size == 1 else size for size in own))
    fits = _broadcasts(own, tuple(shape)) and tuple(shape[len(shape) - len(own) :]) != own
    return shape, Declared((len(shape) - 1,)) if fits else None


def find_cases(
    layer: ForeignLayer,
    like: str,
    shape: Sequence[int] | None,
    parameter: Tensor | None,
    num_groups: int | None,
    declared: Declared | None = None,
) -> list[Case]:
    """The inputs that a module is called with, of each rank that :func:`check_layer` asks for.

    A shape that the module refuses and should take comes after those that it takes.

    Raises:
        ValueError: shape or number of groups cannot be inferred.
    """
    module, norm = layer.modules[0], NORMS[like]
    if declared is None and norm.trailing and parameter is not None:
        shape, declared = _per_index(tuple(parameter.shape), shape)
    if declared is not None:
        assert shape is not None
        layer.shape = tuple(shape)
        rows = [] if 0 in declared.axis else [0]
        return [declared.case(shorten(layer, rows), parameter)]
    own = norm.parameters in ("channel", "shape")  # else the weight says nothing of the axes
    parameter_shape = _parameter_shape(module, like, parameter if own else None)
    if parameter_shape is None and shape is None and not own:
        parameter_shape = (6,)  # any size will do
    if norm.grouped and num_groups is None:
        num_groups = find_attribute(module, "num_groups")
        if num_groups is None:
            raise ValueError("num_groups: the module has no such attribute; pass num_groups=")
    channels_first = False
    shapes: list[tuple[int, ...]] = []
    missing: list[tuple[int, ...]] = []
    said: list[str] = []
    if shape is not None:
        layer.shape = tuple(shape)
        shapes = [shorten(layer, [0])]
        if parameter_shape is not None and norm.trailing:
            channels_first = _channels_first(layer, shapes[0], parameter_shape)
            if channels_first and shapes[0][-1] == parameter_shape[0]:
                shapes = [(*shapes[0][:-1], shapes[0][-1] + 1)]
    elif parameter_shape is not None:
        # a batch norm by hand takes any rank; of an instance norm, another is one sample alone
        several = not norm.needs_positions or norm.grouped
        for candidate, first in _candidates(like, parameter_shape):
            volumes = not norm.trailing and len(candidate) == 5
            if shapes and (first != channels_first or volumes or not several):
                break
            said.append(layer.refusal(candidate))
            # what is right for rows may take wrong axes where there are more
            if not said[-1]:
                shapes, channels_first = [*shapes, candidate], first
            elif not first:
                missing.append(candidate)
        if several and shapes and not channels_first and not norm.over_batch:
            shapes += [s for s in missing if _fits(parameter if own else None, like, s)]
    returned = [text for text in said if text.startswith("the output")]
    if not shapes and returned:  # another shape of the input is no remedy
        raise ValueError(f"layer: could not be tested: {returned[0]}")
    if not shapes:
        raise ValueError(
            "shape: could not be inferred from the module's parameters and attributes; "
            "pass the shape of an input, such as shape=(4, 16)" + (f". {said[0]}" if said else "")
        )
    if parameter_shape is None:
        parameter_shape = shapes[0][-1:] if norm.trailing else shapes[0][1:2]
    elif channels_first:
        parameter_shape = parameter_shape[:1]
    for each in shapes if own else ():
        _check_fit(each, parameter_shape, like, channels_first)
    return [
        Case(
            each,
            parameter_shape if own else (),
            normalized_ndim=len(parameter_shape),
            num_groups=num_groups or 1,
            axis=(1,) if channels_first else None,
            view=_channel_view(each, parameter_shape) if channels_first and own else None,
        )
        for each in shapes
    ]
