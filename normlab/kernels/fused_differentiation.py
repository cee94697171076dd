"""Autograd functions of a norm with its neighbor, by any back end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from normlab.kernels.chunks.pieces import pieces, wide_dtype
from normlab.kernels.differentiation import Kernels, Layer, compute, differentiable_gradients

ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "silu": (F.silu, torch.ops.aten.silu_backward),
    "gelu": (F.gelu, torch.ops.aten.gelu_backward),
}


class Added(torch.autograd.Function):
    """(y, total) of a sum and its norm; saved are the sum and a few numbers a row."""

    @staticmethod
    def forward(
        ctx: Any,
        kernels: Kernels,
        kernel: str,
        composition: Layer,
        constants: tuple[int, float],
        x: Tensor,
        residual: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        total, y, stats = compute(kernels, f"add_{kernel}", x, residual, weight, bias, *constants)
        ctx.save_for_backward(weight, bias, total, stats)
        ctx.kernels, ctx.kernel = kernels, kernel
        ctx.composition, ctx.constants = composition, constants
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, dtotal: Tensor | None) -> tuple[Any, ...]:
        weight, bias, total, stats = ctx.saved_tensors
        needs = ctx.needs_input_grad[4:]
        wanted = (needs[0] or needs[1], *needs[2:])
        if torch.is_grad_enabled():  # somebody will differentiate this gradient again
            dx, *more = differentiable_gradients(ctx.composition, dy, (total, weight, bias), wanted)
            if dtotal is not None:
                dx = dtotal if dx is None else dx + dtotal
            return *(None,) * 4, dx, dx, *more
        if dy is None:
            return *(None,) * 4, dtotal, dtotal, None, None
        dy = dy.resolve_neg()
        dtotal = None if dtotal is None else dtotal.resolve_neg()
        kernel, rest = f"{ctx.kernel}_backward", (stats, weight, wanted, *ctx.constants)
        dx, *sums = compute(ctx.kernels, kernel, dy, total, *rest, beside=dtotal)
        both = (dx if need else None for need in needs[:2])
        return *(None,) * 4, *both, *_shaped(sums, weight, bias)


class Activated(torch.autograd.Function):
    """The activation of a norm; saved is the input, and its norm is computed again."""

    @staticmethod
    def forward(
        ctx: Any,
        kernels: Kernels,
        kernel: str,
        activation: str,
        composition: Layer,
        constants: tuple[int, float],
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        rows = x.reshape(-1, constants[0])
        y = torch.empty_like(rows, memory_format=torch.contiguous_format)
        w, b = _wide(x.dtype, weight, bias)
        for piece in pieces(*rows.shape):
            wide = rows[piece].to(wide_dtype(x.dtype))
            z, _ = compute(kernels, kernel, wide, w, b, *constants)
            y[piece] = ACTIVATIONS[activation][0](z)
        ctx.save_for_backward(x, weight, bias)
        ctx.kernels, ctx.kernel = kernels, kernel
        ctx.composition, ctx.constants = composition, constants
        ctx.differentiate = ACTIVATIONS[activation][1]
        return y.view(x.shape)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        x, weight, bias = ctx.saved_tensors
        needs = ctx.needs_input_grad[5:]
        if torch.is_grad_enabled():
            more = differentiable_gradients(ctx.composition, dy, (x, weight, bias), needs)
            return *(None,) * 5, *more
        rows, upstream = (t.resolve_neg().reshape(-1, ctx.constants[0]) for t in (x, dy))
        dx = torch.empty_like(rows, memory_format=torch.contiguous_format) if needs[0] else None
        sums: list[Tensor | None] = [None, None]
        dtype = wide_dtype(x.dtype)
        w, b = _wide(x.dtype, weight, bias)
        for piece in pieces(*rows.shape):
            wide = rows[piece].to(dtype)
            z, stats = compute(ctx.kernels, ctx.kernel, wide, w, b, *ctx.constants)
            dz = ctx.differentiate(upstream[piece].to(dtype), z)
            rest = stats, w, needs, *ctx.constants
            here, *more = compute(ctx.kernels, f"{ctx.kernel}_backward", dz, wide, *rest)
            _accumulate(sums, more)
            if dx is not None:
                dx[piece] = here
        dx = None if dx is None else dx.view(x.shape)
        return *(None,) * 5, dx, *_shaped(sums, weight, bias)


def _wide(dtype: torch.dtype, *parameters: Tensor | None) -> list[Tensor | None]:
    return [None if p is None else p.to(wide_dtype(dtype)) for p in parameters]


def _accumulate(sums: list[Tensor | None], more: list[Tensor | None]) -> None:
    """Add the gradients of a piece in float64, so that many pieces cost no digit."""
    for i, gradient in enumerate(more):
        if gradient is not None:
            before = sums[i]
            sums[i] = gradient.double() if before is None else before + gradient


def _shaped(sums: list[Tensor | None], *parameters: Tensor | None) -> list[Tensor | None]:
    return [
        None if s is None or p is None else s.to(p.dtype).view(p.shape)
        for s, p in zip(sums, parameters, strict=True)
    ]
