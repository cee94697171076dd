"""Kernels under autograd: saved is the input and a few numbers a row, and nothing of its size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import unwrap_if_dead

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
Layer = Callable[[Tensor, Tensor | None, Any], Tensor]  # of input, weight and bias
Needs = Sequence[bool]  # whether input, weight and bias need a gradient
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


class Kernels(NamedTuple):
    """What a back end knows.

    Attributes:
        name: in `normlab.kernels.backends`.
        device: the type of the device that it computes on.
        module: NORM(x, weight, bias, *constants) gives y and statistics, from which
            NORM_backward makes gradients; NORM is "layer_norm", "rms_norm", "batch_norm" or
            "group_norm", as far as there is one.
        dtypes: of the input.
        largest: number of features of a row.
        traced: whether they are operators in a graph, which know their gradients.
        note: what to do where a kernel fails.
    """

    name: str
    device: str
    module: ModuleType
    dtypes: tuple[torch.dtype, ...] = DTYPES
    largest: float = float("inf")
    traced: bool = False
    note: str = "normlab.layers computes the same with torch's operations alone"


def compute(kernels: Kernels, kernel: str, *args: Any, **more: Tensor | None) -> Any:
    """Call one kernel; if it fails, the error says what to do."""
    try:
        return getattr(kernels.module, kernel)(*args, **more)
    except Exception as error:
        error.add_note(f"raised in {kernel} of the back end {kernels.name!r}; {kernels.note}")
        raise


class _Norm(torch.autograd.Function):
    """y = kernel(x, weight, bias), whose backward is the kernel's own, or the layer's.

    A tiny input is computed in less time than a few lines of Python take, so there are few.
    """

    @staticmethod
    def forward(
        ctx: Any, called: list[Any], x: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        kernels, kernel, _, constants = called
        y, stats = compute(kernels, kernel, x, weight, bias, *constants)
        ctx.save_for_backward(x, weight, stats)
        ctx.called = called
        if bias is not None:
            ctx.bias = bias.shape, bias.dtype  # its values are not needed
        called.append(stats)  # a second output, and each more input, would cost a microsecond
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        _, *needs = ctx.needs_input_grad
        kernels, kernel, layer, constants = ctx.called
        x, weight, stats = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this gradient again
            bias = None
            if hasattr(ctx, "bias"):
                bias = x.new_zeros(ctx.bias[0], dtype=ctx.bias[1], requires_grad=needs[2])
            return None, *differentiable_gradients(layer, dy, (x, weight, bias), needs)
        if dy.is_neg():
            dy = dy.resolve_neg()
        kernel += "_backward"
        dx, dweight, dbias = compute(kernels, kernel, dy, x, stats, weight, needs, *constants)
        if dweight is not None:
            dweight = shaped(dweight, weight.shape, weight.dtype)
        if dbias is not None:
            dbias = shaped(dbias, *ctx.bias)
        return None, dx, dweight, dbias


# `_Norm.apply` asks again what `is_plain_call` and `apply` know: a tenth of the time of a tiny norm
_apply = super(torch.autograd.Function, _Norm).apply


def shaped(gradient: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """The gradient of a parameter of this shape and dtype."""
    if gradient.dtype is not dtype:
        gradient = gradient.to(dtype)
    return gradient if gradient.shape == shape else gradient.view(shape)


def differentiable_gradients(
    layer: Layer,
    dy: Tensor | None,
    tensors: tuple[Tensor, Tensor | None, Tensor | None],
    needs: Needs,
) -> list[Tensor | None]:
    """The gradients by torch, which can differentiate them."""
    if dy is None:
        return [None, None, None]
    wanted = [t for t, need in zip(tensors, needs, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(layer(*tensors), wanted, dy, create_graph=True))
    return [next(found) if need else None for need in needs]


def apply(
    kernels: Kernels,
    kernel: str,
    layer: Layer,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *constants: Any,
) -> tuple[Tensor, Tensor]:
    """Give y and the statistics, recorded for autograd if something requires a gradient."""
    # what was kept from inside of a transform of torch.func that has ended
    x = unwrap_if_dead(x)
    weight = None if weight is None else unwrap_if_dead(weight)
    bias = None if bias is None else unwrap_if_dead(bias)
    if torch.is_grad_enabled() and (
        x.requires_grad
        or (weight is not None and weight.requires_grad)
        or (bias is not None and bias.requires_grad)
    ):
        called: list[Any] = [kernels, kernel, layer, constants]
        y = _apply(called, x, weight, bias)
        return y, called.pop()
    return compute(kernels, kernel, x, weight, bias, *constants)
