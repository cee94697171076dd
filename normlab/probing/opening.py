"""Open any layer for probing: find what it uses, the dtype and the shape that show most."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normlab.probing.arguments import pick, tensors_in
from normlab.probing.probe import NoNorm, Probe
from normlab.probing.state import copy_module, preserve_state

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_LARGE = 50_000


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


@contextlib.contextmanager
def open_probe(layer: Callable[[Tensor], Any], shape: Sequence[int]) -> Iterator[Probe]:
    """Prepare a layer for probing and leave it, and the random streams, as they were.

    A module is copied. What cannot be copied, and the modules and tensors that a function closes
    over, are used as they are and put back at the end.

    Args:
        layer: a module or a function of one tensor.
        shape: of an input.

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
            layer, copies = copy_module(layer), True
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
        yield Probe(call, modules, shape, loose, copies=copies)


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """What torch.compile was given runs as it is, so that not every shape is compiled anew.

    Without the compiler in memory nothing is compiled, and importing it takes seconds.
    """
    with (
        torch.compiler.set_stance("force_eager")
        if "torch._dynamo" in sys.modules
        else contextlib.nullcontext()
    ):
        yield


def choose_probe(original: Probe) -> Probe:
    """The layer in the widest dtype that it takes, with a shape that shows most.

    Axes of size 1 are made larger and very large ones smaller, where the layer allows it.

    Raises:
        NoNorm: the output is no tensor of the input's shape.
        ValueError: every call fails.
    """
    error: Exception | None = None
    enlarged = tuple(max(size, 2) for size in original.shape)
    for dtype in _DTYPES:
        probe = original.at(dtype)
        for probe.shape in dict.fromkeys((enlarged, original.shape)):
            try:
                y = probe(probe.input(1))
            except Exception as raised:  # a layer may refuse an input in any way
                error = error if dtype != torch.float32 and error is not None else raised
                continue
            inside = [p for p, t in tensors_in(y) if p and t.shape == probe.shape]
            if inside:  # a residual may come back beside the output
                probe.result = original.result = inside[0]
                y = pick(y, probe.result)
            if isinstance(y, Tensor) and y.shape == probe.shape and y.is_floating_point():
                probe.shape = shorten(probe, range(len(probe.shape)))
                return probe
            if probe.shape == original.shape:
                got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
                raise NoNorm(
                    f"an input of shape {probe.shape} gives {got}; a norm gives a tensor of the "
                    "input's shape (wrap what returns more: `lambda x: layer(x)[0]`)"
                )
    raise ValueError(
        f"layer: a call with an input of shape {original.shape} failed, in every dtype: "
        f"{type(error).__name__}: {error}. Pass the shape of an input that it takes, and "
        "wrap a layer that needs more than one argument: `lambda x: layer(x, other)`"
    )


def shorten(probe: Probe, axes: Iterable[int]) -> tuple[int, ...]:
    """The shape with those of some axes cut that the layer lets go, where it is very large."""
    shape = probe.shape
    for axis in axes:
        cut = (*shape[:axis], min(shape[axis], 4 + axis), *shape[axis + 1 :])
        if math.prod(shape) > _LARGE and probe.accepts(cut):
            shape = cut
    return shape
