"""A norm and its neighbor in one go: the sum before it, or the activation behind it.

By the fastest back end. Forward keeps the sum alone, or the input of an activated norm alone. On
the one processor where it was timed, the compiled sum with its norm took less time than two calls,
because a row of the sum is normalized while it is in the cache. The chunked one took more, and so
did the activations, since their norm is computed again: what these save is memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from normlab.kernels import functions
from normlab.kernels.calls import features_of_rows
from normlab.kernels.chunks.pieces import wide_dtype
from normlab.kernels.differentiation import Kernels
from normlab.kernels.fused_differentiation import ACTIVATIONS, Activated, Added

Shape = Sequence[int]
_BIASED = {"layer_norm"}


def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    r"""Give the layer norm of `input + residual`, and the sum.

    Args:
        input: what a sublayer returned.
        residual: the stream that it is added to.
        normalized_shape: the trailing axes that share statistics.
        weight: factor of each feature, or None.
        bias: summand of each feature, or None.
        eps: added to the variance.

    Shape:
        input, residual, and both results: (\*, normalized_shape).

    Returns:
        the output of the norm and the sum, both in the input's dtype.

    Raises:
        ValueError: `residual` has another shape or dtype than `input`.

    Conventions:
        the norm is that of the rounded sum, as where sum and norm are two calls.

    Example:
        >>> y, total = add_layer_norm(torch.ones(2, 4), torch.arange(4.0).expand(2, 4), (4,))
        >>> total[0].tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    return _add("layer_norm", input, residual, normalized_shape, weight, bias, eps)


def add_rms_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Give the RMS norm of `input + residual`, and the sum; see :func:`add_layer_norm`."""
    return _add("rms_norm", input, residual, normalized_shape, weight, None, eps)


def layer_norm_silu(
    input: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Give SiLU of the layer norm; see :func:`rms_norm_silu`."""
    return _activate("layer_norm", "silu", input, normalized_shape, weight, bias, eps)


def layer_norm_gelu(
    input: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Give GELU (with erf) of the layer norm; see :func:`rms_norm_silu`."""
    return _activate("layer_norm", "gelu", input, normalized_shape, weight, bias, eps)


def rms_norm_silu(
    input: Tensor, normalized_shape: Shape, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    r"""Give SiLU of the RMS norm.

    Args:
        input: what is normalized.
        normalized_shape: the trailing axes that share statistics.
        weight: factor of each feature, or None.
        eps: added to the mean square; None for the smallest step of the dtype that computes.

    Shape:
        input and result: (\*, normalized_shape).

    Returns:
        the activations, in the input's dtype.

    Conventions:
        16-bit input is computed in float32 up to the end and rounded once. Saved for backward is
        the input alone; its norm is computed again.

    Example:
        >>> rms_norm_silu(torch.tensor([[3.0, -3.0]]), (2,))
        tensor([[ 0.7311, -0.2689]])
    """
    return _activate("rms_norm", "silu", input, normalized_shape, weight, None, eps)


def rms_norm_gelu(
    input: Tensor, normalized_shape: Shape, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Give GELU (with erf) of the RMS norm; see :func:`rms_norm_silu`."""
    return _activate("rms_norm", "gelu", input, normalized_shape, weight, None, eps)


def _norm(
    kernel: str,
    x: Tensor,
    shape: Shape,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float | None,
) -> Tensor:
    """The norm by torch, in the dtype of the statistics; it also says what is wrong."""
    wide = wide_dtype(x.dtype)
    w, b = (None if p is None else p.to(wide) for p in (weight, bias))
    parameters = (w, b) if kernel in _BIASED else (w,)
    norm: Callable[..., Tensor] = getattr(F, kernel)
    return norm(x.to(wide), tuple(shape), *parameters, eps)


def _add(
    kernel: str,
    input: Tensor,
    residual: Tensor,
    shape: Shape,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float | None,
) -> tuple[Tensor, Tensor]:
    if residual.shape != input.shape or residual.dtype != input.dtype:
        raise ValueError(
            f"residual: got {tuple(residual.shape)} of {residual.dtype}; expected "
            f"{tuple(input.shape)} of {input.dtype}, as input has: expand or convert it first"
        )

    def composition(total: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return _norm(kernel, total, shape, w, b, eps).to(total.dtype)

    kernels = _choose(input, shape, weight, bias)
    if kernels is None or isinstance(features_of_rows(kernels, residual, shape), str):
        total = input + residual
        return composition(total, weight, bias), total
    constants = math.prod(shape), _eps(eps, input)
    return Added.apply(kernels, kernel, composition, constants, input, residual, weight, bias)


def _activate(
    kernel: str,
    activation: str,
    input: Tensor,
    shape: Shape,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float | None,
) -> Tensor:
    def composition(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return ACTIVATIONS[activation][0](_norm(kernel, x, shape, w, b, eps)).to(x.dtype)

    kernels = _choose(input, shape, weight, bias)
    if kernels is None:
        return composition(input, weight, bias)
    constants = math.prod(shape), _eps(eps, input)
    return Activated.apply(kernels, kernel, activation, composition, constants, input, weight, bias)


def _choose(
    input: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None
) -> Kernels | None:
    """The kernels of a processor that compute; a compiler fuses the composition itself."""
    if torch.compiler.is_compiling() or not input.is_cpu:
        return None
    kernels = functions.choose(input)
    if kernels is None or isinstance(features_of_rows(kernels, input, shape, weight, bias), str):
        return None
    return kernels


def _eps(eps: float | None, x: Tensor) -> float:
    return torch.finfo(wide_dtype(x.dtype)).eps if eps is None else eps
