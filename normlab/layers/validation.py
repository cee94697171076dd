"""Argument checks that the layers share. Each message names the argument and the remedy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class ShapeError(ValueError, RuntimeError):
    """A size or value does not fit. Code that catches torch's RuntimeError or ValueError works."""


class DtypeError(TypeError, NotImplementedError):
    """A dtype does not fit. Code that catches torch's RuntimeError works."""


def check_floating(input: Tensor, *, or_complex: bool = False) -> None:
    """Refuse integers, and complex numbers where they make no sense."""
    if not (input.dtype.is_floating_point or (or_complex and input.dtype.is_complex)):
        raise DtypeError(
            f"input: got {input.dtype}; expected a floating dtype. Convert with input.float()"
        )


def check_dtypes(input: Tensor, **parameters: Tensor | None) -> None:
    """Refuse what torch's norm kernels refuse: parameters of several dtypes, or of another.

    For 16-bit input they may all be float32.
    """
    check_floating(input)
    given = {name: p.dtype for name, p in parameters.items() if p is not None}
    found = set(given.values())
    if not found or found == {input.dtype}:
        return
    half = input.dtype in (torch.float16, torch.bfloat16)
    if half and found == {torch.float32}:
        return
    listed = ", ".join(f"{name} {dtype}" for name, dtype in given.items())
    allowed = f"all {input.dtype}" + (" or all torch.float32" if half else "")
    raise DtypeError(f"{listed}: mixed with input {input.dtype}; expected {allowed}")


def check_normalized_shape(
    input: Tensor, normalized_shape: Sequence[int], **parameters: Tensor | None
) -> tuple[int, ...]:
    """Give `normalized_shape` as a tuple once input and parameters end in it."""
    if isinstance(normalized_shape, int) or not all(
        isinstance(n, int) for n in tuple(normalized_shape)
    ):
        raise TypeError(
            f"normalized_shape: got {normalized_shape!r}; expected a tuple of ints, "
            "such as (input.shape[-1],)"
        )
    shape = tuple(normalized_shape)
    if not shape:
        raise ShapeError("normalized_shape: got (); expected at least one axis, such as (4,)")
    if tuple(input.shape[-len(shape) :]) != shape or input.dim() < len(shape):
        raise ShapeError(
            f"normalized_shape: got {shape} for an input of shape {tuple(input.shape)}; "
            f"expected the input's last {len(shape)} sizes"
        )
    for name, p in parameters.items():
        if p is not None and tuple(p.shape) != shape:
            raise ShapeError(
                f"{name}: got shape {tuple(p.shape)}; expected normalized_shape {shape}"
            )
    return shape


def as_shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """The last sizes of an input as a tuple; an int stands for one axis."""
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


def check_positions(input: Tensor) -> tuple[int, ...]:
    """Give the axes of the positions of an image or a sequence, (N, C, positions)."""
    check_floating(input)
    if input.dim() < 3:
        raise ShapeError(
            f"input: got shape {tuple(input.shape)}; expected (N, C, *) with positions. Add an "
            "axis for one position with input.unsqueeze(-1)"
        )
    return tuple(range(2, input.dim()))


def check_channel_vector(input: Tensor, **parameters: Tensor | None) -> None:
    """Refuse an input without a channel axis, and parameters that are not (C,)."""
    if input.dim() < 2:
        raise ShapeError(
            f"input: got shape {tuple(input.shape)}; expected (N, C, *). "
            "Add the missing axis with input.unsqueeze(0)"
        )
    for name, p in parameters.items():
        if p is not None and tuple(p.shape) != (input.shape[1],):
            raise ShapeError(
                f"{name}: got shape {tuple(p.shape)}; expected ({input.shape[1]},), "
                f"one entry for each channel of the input {tuple(input.shape)}"
            )


def check_running_pair(running_mean: Tensor | None, running_var: Tensor | None) -> None:
    """Refuse one running statistic without the other."""
    if (running_mean is None) != (running_var is None):
        missing = "running_mean" if running_mean is None else "running_var"
        raise ShapeError(f"{missing}: got None; expected both running statistics, or neither")
