"""Kernels under autograd: saved is the input and a few numbers a row, and nothing of its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from normlab.kernels import choice

Composition = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]


def _on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def compute(kernel: str, x: Tensor, *rest: Any, **more: Tensor | None) -> Any:
    """Call `kernel` of the chosen back end; where numba cannot compile it, of the chunked one."""
    # where the choice has changed to the composition since forward, what was saved fits this one
    module = choice.gpu_backend() if _on_gpu(x) else choice.backend() or choice.other_backend()
    assert module is not None
    if x.dtype in getattr(module, "LACKS", ()):
        module = choice.other_backend()
    if not getattr(module, "MAY_FAIL", False):
        return getattr(module, kernel)(x, *rest, **more)
    try:
        return getattr(module, kernel)(x, *rest, **more)
    except Exception as error:
        # this one may rightly fail, too
        found = getattr(choice.other_backend(), kernel)(x, *rest, **more)
        choice.give_up(f"{type(error).__name__}: {error}")
        return found


class _Norm(torch.autograd.Function):
    """y = kernel(x, weight, bias), whose backward is the kernel's own, or the composition's."""

    @staticmethod
    def forward(
        ctx: Any, called: list[Any], x: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        kernel, composition, constants = called
        y, stats = compute(kernel, x, weight, bias, *constants)
        called.append(stats)  # a second output, and each more input, would cost a microsecond
        ctx.save_for_backward(x, weight, stats)
        ctx.called = kernel, composition, constants
        ctx.bias = None if bias is None else (bias.shape, bias.dtype)  # its values are not needed
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        needs = ctx.needs_input_grad[1:]
        kernel, composition, constants = ctx.called
        x, weight, stats = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this gradient again
            bias = None
            if ctx.bias is not None:
                bias = x.new_zeros(ctx.bias[0], dtype=ctx.bias[1], requires_grad=needs[2])
            return None, *differentiable_gradients(composition, dy, (x, weight, bias), needs)
        if dy.is_neg():
            dy = dy.resolve_neg()
        dx, dweight, dbias = compute(f"{kernel}_backward", dy, x, stats, weight, needs, *constants)
        if dweight is not None:
            dweight = _shaped(dweight, weight.shape, weight.dtype)
        if dbias is not None:
            dbias = _shaped(dbias, *ctx.bias)
        return None, dx, dweight, dbias


def _shaped(gradient: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    if gradient.dtype != dtype:
        gradient = gradient.to(dtype)
    return gradient if gradient.shape == shape else gradient.view(shape)


def differentiable_gradients(
    composition: Composition,
    dy: Tensor | None,
    tensors: tuple[Tensor, Tensor | None, Tensor | None],
    needs: tuple[bool, ...],
) -> list[Tensor | None]:
    """The gradients by torch, which can differentiate them."""
    if dy is None:
        return [None, None, None]
    wanted = [t for t, need in zip(tensors, needs, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(composition(*tensors), wanted, dy, create_graph=True))
    return [next(found) if need else None for need in needs]


def apply(
    kernel: str,
    composition: Composition,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *constants: Any,
) -> tuple[Tensor, Tensor]:
    """Give y and the statistics, recorded for autograd if something requires a gradient."""
    if torch.is_grad_enabled() and (
        x.requires_grad
        or (weight is not None and weight.requires_grad)
        or (bias is not None and bias.requires_grad)
    ):
        called: list[Any] = [kernel, composition, constants]
        y = _Norm.apply(called, x, weight, bias)
        return y, called[3]
    return compute(kernel, x, weight, bias, *constants)
