"""Before anything is measured: can the layer be called, and does it normalize at all?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from normlab.probing.groups import make_input
from normlab.probing.probe import Subject

__all__ = ["NoNorm", "check_answers", "choose_subject", "describe_elementwise", "is_identity"]

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class NoNorm(Exception):
    """It is none of the norms that can be named; the text says why."""


def choose_subject(original: Subject, real_shape: Sequence[int]) -> tuple[Subject, tuple[int, ...]]:
    """The layer in the widest dtype that it takes, and a shape that shows most.

    Axes of size 1 are made larger and very large ones smaller, where the layer allows it.

    Args:
        original: the layer.
        real_shape: of the input that was asked about.

    Raises:
        NoNorm: the output is no tensor of the input's shape.
        ValueError: every call fails.
    """
    real_shape = tuple(real_shape)
    error: Exception | None = None
    enlarged = tuple(max(size, 2) for size in real_shape)
    for dtype in _DTYPES:
        subject = original.at(dtype)
        for shape in dict.fromkeys((enlarged, real_shape)):
            try:
                y = subject(make_input(shape, 1))
            except Exception as raised:  # a layer may refuse an input in any way
                error = error if dtype != torch.float32 and error is not None else raised
                continue
            if isinstance(y, Tensor) and y.shape == shape and y.is_floating_point():
                return subject, _smaller(subject, shape)
            if shape == real_shape:
                got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
                raise NoNorm(
                    f"an input of shape {shape} gives {got}; a norm gives a tensor of the "
                    "input's shape (wrap what returns more: `lambda x: layer(x)[0]`)"
                )
    raise ValueError(
        f"layer: a call with an input of shape {real_shape} failed, in every dtype: "
        f"{type(error).__name__}: {error}. Pass the shape of an input that it takes, and "
        "wrap a layer that needs more than one argument: `lambda x: layer(x, other)`"
    )


def _smaller(subject: Subject, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with those axes cut that the layer lets go, where it is very large."""
    for axis, size in enumerate(shape):
        if math.prod(shape) <= 50_000:
            break
        cut = (*shape[:axis], min(size, 4 + axis), *shape[axis + 1 :])
        try:
            y = subject(make_input(cut, 1))
        except Exception:  # this axis is fixed
            continue
        if isinstance(y, Tensor) and y.shape == cut:
            shape = cut
    return shape


def check_answers(subject: Subject, shape: Sequence[int]) -> None:
    """Require one finite output for one input.

    Raises:
        NoNorm: two calls differ, or an output is not finite.
    """
    x = make_input(shape, 2)
    first, second = subject.measure(x), subject.measure(x)
    if not torch.allclose(first, second, rtol=1e-6, atol=0, equal_nan=True):
        raise NoNorm("two calls with the same input give different outputs: it is random")
    if not bool(first.isfinite().all()):
        raise NoNorm("normal inputs give outputs that are not finite")


def is_identity(subject: Subject, shape: Sequence[int]) -> bool:
    """Whether the output is the input, in training and in evaluation."""
    inputs = [make_input(shape, 3), 1e3 * make_input(shape, 4)]
    given = [x.to(subject.dtype).double() for x in inputs]
    return all(
        torch.equal(subject.measure(x, training=mode), x) for x in given for mode in (True, False)
    )


def describe_elementwise(subject: Subject, shape: Sequence[int]) -> str:
    """What a layer does whose outputs depend each on its own input alone."""
    x, y = make_input(shape, 5), make_input(shape, 6)
    f = subject.measure
    straight = f(x + y) - f(x) - f(y) + f(torch.zeros_like(x))
    if float(straight.abs().max()) <= 1e-4 * float(f(x + y).abs().max()):
        return (
            "each output is a fixed affine function of its own input: no statistics of the "
            "input are taken (a batch norm with frozen statistics does this)"
        )
    return "each output is a nonlinear function of its own input alone: no statistics are taken"
