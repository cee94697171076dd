"""A residual sum and the norm behind it in one go, by the fastest back end.

Forward keeps the sum alone. On the one processor where it was timed, the compiled sum with its norm
took less time than two calls, because a row of the sum is normalized while it is in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from normlab import layers
from normlab.kernels import functions
from normlab.kernels.calls import Unknown, features_of_rows
from normlab.kernels.differentiation import (
    Kernels,
    Layer,
    compute,
    differentiable_gradients,
    shaped,
)


def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
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

    def norm(module: Any, total: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
        return module.layer_norm(total, normalized_shape, w, b, eps)

    return _add("layer_norm", norm, input, residual, normalized_shape, weight, bias, eps)


def add_rms_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Give the RMS norm of `input + residual`, and the sum; see :func:`add_layer_norm`."""

    def norm(module: Any, total: Tensor, w: Tensor | None, b: None) -> Tensor:
        return module.rms_norm(total, normalized_shape, w, eps)

    known = torch.finfo(torch.float32).eps if eps is None else eps
    return _add("rms_norm", norm, input, residual, normalized_shape, weight, None, known)


def _add(
    kernel: str,
    norm: Callable[..., Tensor],
    input: Tensor,
    residual: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """By one kernel of a processor, or as two calls; `norm(module, total, weight, bias)`."""
    if residual.shape != input.shape or residual.dtype != input.dtype:
        raise ValueError(
            f"residual: got {tuple(residual.shape)} of {residual.dtype}; expected "
            f"{tuple(input.shape)} of {input.dtype}, as input has: expand or convert it first"
        )
    # a compiler fuses the sum into what is around it
    if input.is_cpu and not torch.compiler.is_compiling():
        kernels = functions.choose(input)
        if kernels is not None:
            try:
                features = features_of_rows(kernels, input, shape, weight, bias)
                features_of_rows(kernels, residual, shape)
            except Unknown:
                pass
            else:

                def layer(total: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
                    return norm(layers, total, w, b)

                called = kernels, kernel, layer, (features, eps)
                return _Added.apply(called, input, residual, weight, bias)
    total = input + residual
    return norm(functions, total, weight, bias), total


class _Added(torch.autograd.Function):
    """(y, total) of a sum and its norm; saved are the sum and a few numbers a row."""

    @staticmethod
    def forward(
        ctx: Any,
        called: tuple[Kernels, str, Layer, tuple[int, float]],
        x: Tensor,
        residual: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        kernels, kernel, _, constants = called
        total, y, stats = compute(kernels, f"add_{kernel}", x, residual, weight, bias, *constants)
        ctx.save_for_backward(weight, bias, total, stats)
        ctx.called = called
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, dtotal: Tensor | None) -> tuple[Any, ...]:
        kernels, kernel, layer, constants = ctx.called
        weight, bias, total, stats = ctx.saved_tensors
        _, *needs = ctx.needs_input_grad
        wanted = needs[0] or needs[1], *needs[2:]
        if torch.is_grad_enabled():  # somebody will differentiate this gradient again
            dx, *more = differentiable_gradients(layer, dy, (total, weight, bias), wanted)
            if dtotal is not None:
                dx = dtotal if dx is None else dx + dtotal
            return None, dx, dx, *more
        if dy is None:
            return None, dtotal, dtotal, None, None
        dy = dy.resolve_neg()
        dtotal = None if dtotal is None else dtotal.resolve_neg()
        rest = stats, weight, wanted, *constants
        dx, *sums = compute(kernels, f"{kernel}_backward", dy, total, *rest, beside=dtotal)
        both = (dx if need else None for need in needs[:2])
        parameters = (
            None if found is None else shaped(found, p.shape, p.dtype)
            for found, p in zip(sums, (weight, bias), strict=True)
        )
        return None, *both, *parameters
