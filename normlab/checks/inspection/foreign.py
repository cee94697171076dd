"""Tensors that know few operators: sparse, nested, without values, quantized, of eight bits."""

from __future__ import annotations

import contextlib
import math
import textwrap
from typing import Any

import torch
from torch import Tensor, nn

from normlab.checks.probing.arguments import tensors_in

# what is raised where a kind of tensor does not know an operator
REFUSALS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError)


def address(tensor: Tensor) -> int:
    """Where its first entry lies; 0 where that cannot be said."""
    try:
        return tensor.data_ptr() if tensor.layout == torch.strided else 0
    except (RuntimeError, ValueError):  # inside of torch.vmap, lazy, or around another tensor
        return 0


def is_dense(tensor: Tensor) -> bool:
    """Whether sizes and strides say where in memory each of its entries lies."""
    if tensor.layout != torch.strided or tensor.is_nested:
        return False
    return address(tensor) != 0 or (type(tensor) in (Tensor, nn.Parameter) and not tensor.numel())


def read_entries(tensor: Tensor) -> Tensor:
    """What it holds, as real numbers that can be summed and compared.

    Raises:
        Exception: one of `REFUSALS`, where they cannot be read.
    """
    held = tensor.detach()
    if held.is_meta:
        raise RuntimeError("on the meta device there are no values")
    if held.layout == torch.sparse_coo:
        held = held.coalesce()
    if held.layout != torch.strided or held.is_nested:
        held = held.values()
    if held.is_quantized:
        held = held.dequantize()
    if held.is_complex():
        held = torch.view_as_real(held.resolve_conj())
    return held.float() if held.is_floating_point() and held.dtype.itemsize == 1 else held


def has_nan(value: Any) -> bool:
    """Whether a tensor in lists, tuples and mappings has NaN."""
    for _, tensor in tensors_in(value):
        with contextlib.suppress(*REFUSALS):
            if bool(read_entries(tensor).isnan().any()):
                return True
    return False


def is_finite(tensor: Tensor) -> bool:
    """Whether all entries are; a sum that is finite says so sooner than a look at each."""
    return math.isfinite(float(tensor.sum())) or bool(torch.isfinite(tensor).all())


def describe(tensor: Tensor) -> str:
    """Its kind, in a word or two."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return type(tensor).__name__
    kind = "nested" if tensor.is_nested else tensor.layout if not is_dense(tensor) else tensor.dtype
    return "meta" if tensor.is_meta else str(kind).removeprefix("torch.")


def first_line(error: Exception) -> str:
    """The first line of what an exception says, where torch goes on with lists of back ends."""
    return textwrap.shorten(str(error).partition("\n")[0], 160, placeholder=" …")
