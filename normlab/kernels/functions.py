"""The five norms, computed by the chosen back end, or not at all.

Each function has the arguments of its namesake in `normlab.layers`, and `composition`, that
namesake's body. It returns None where it is not for the kernels: then the composition computes, or
says what is wrong with the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normlab.kernels import choice, operators
from normlab.kernels.differentiation import apply

_PLAIN = (Tensor, nn.Parameter)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _fits(input: Tensor, *parameters: Tensor | None) -> bool:
    """Plain tensors on the CPU, of a dtype that the kernels know, with something in them."""
    if (
        type(input) not in _PLAIN
        or not input.is_cpu
        or input.dtype not in _DTYPES
        or input.layout is not torch.strided
        or input.numel() == 0
    ):
        return False
    dtype = None
    for p in parameters:
        if p is None:
            continue
        if type(p) not in _PLAIN or not p.is_cpu:
            return False
        if p.dtype != dtype:
            if dtype is not None or p.dtype not in (input.dtype, torch.float32):
                return False
            dtype = p.dtype
    return torch.compiler.is_compiling() or not input.is_neg()


def _call(
    kernel: str, composition: Callable[..., Tensor], *arguments: Any
) -> tuple[Tensor, Tensor]:
    if torch.compiler.is_compiling():
        return operators.call(kernel, *arguments)
    return apply(kernel, composition, *arguments)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    composition: Callable[..., Tensor],
) -> Tensor | None:
    """Layer norm by the chosen back end, or None."""
    features = _features(input, normalized_shape, weight, bias)
    if not features:
        return None

    def again(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return composition(x, normalized_shape, w, b, eps)

    return _call("layer_norm", again, input, weight, bias, features, eps)[0]


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    composition: Callable[..., Tensor],
) -> Tensor | None:
    """RMS norm by the chosen back end, or None."""
    features = _features(input, normalized_shape, weight)
    if not features:
        return None
    if eps is None:
        eps = torch.finfo(torch.float32).eps

    def again(x: Tensor, w: Tensor | None, b: None) -> Tensor:
        return composition(x, normalized_shape, w, eps)

    return _call("rms_norm", again, input, weight, None, features, eps)[0]


def _features(input: Tensor, normalized_shape: Sequence[int], *parameters: Tensor | None) -> int:
    """The size of a row, or 0 if the arguments are not for a kernel."""
    if not choice.wanted() or not _fits(input, *parameters):
        return 0
    if not isinstance(normalized_shape, tuple | list):
        return 0
    shape = tuple(normalized_shape)
    if not shape or input.shape[-len(shape) :] != shape:
        return 0
    for p in parameters:
        if p is not None and p.shape != shape:
            return 0
    features = 1
    for n in shape:
        if type(n) is not int and not isinstance(n, torch.SymInt):
            return 0
        features *= n
    # of one value nothing is left but rounding, which the composition has less of
    return features if features > 1 else 0
