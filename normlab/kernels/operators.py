"""The kernels as operators of torch, which `torch.compile` takes into its graph as they stand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normlab.kernels import choice
from normlab.kernels.differentiation import DTYPES, Kernels, compute


class _Operator(NamedTuple):
    """What distinguishes one kernel from another."""

    constants: str  #: the arguments behind x, weight and bias, as a schema
    statistics: Callable[..., tuple[Any, ...]]  #: their shape, from x and the constants
    parameters: Callable[..., Any]  #: size of weight and bias, from x and the constants
    layout: torch.memory_format  #: of the output and of the input's gradient


_OPERATORS = {
    "batch_norm": _Operator(
        "float eps",
        lambda x, eps: (4, x.shape[1]),
        lambda x, eps: x.shape[1],
        torch.preserve_format,
    ),
    "group_norm": _Operator(
        "SymInt groups, float eps",
        lambda x, groups, eps: (4, x.shape[0] * groups),
        lambda x, groups, eps: x.shape[1],
        torch.preserve_format,
    ),
    "layer_norm": _Operator(
        "SymInt features, float eps",
        lambda x, features, eps: (3, x.numel() // features),
        lambda x, features, eps: features,
        torch.contiguous_format,
    ),
    "rms_norm": _Operator(
        "SymInt features, float eps",
        lambda x, features, eps: (1, x.numel() // features),
        lambda x, features, eps: features,
        torch.contiguous_format,
    ),
}


def _find(x: Tensor) -> Kernels:
    """The kernels that compute, asked for when an operator runs."""
    found = choice.find(x.device.type, x.dtype)
    assert found is not None  # a graph holds operators for `known_dtypes` alone
    return found


def known_dtypes() -> tuple[torch.dtype, ...]:
    """What the operators compute on this machine."""
    return tuple(dtype for dtype in DTYPES if choice.find("cpu", dtype))


# as torch.compiler.assume_constant_result does, which would import the compiler at once
known_dtypes._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _register(kernel: str) -> None:
    made = _OPERATORS[kernel]
    name = f"normlab::{kernel}"

    def laid_out(result: Tensor, x: Tensor) -> Tensor:
        # the graph was planned with the strides of the fakes below
        planned = torch.empty_like(x, device="meta", memory_format=made.layout)
        if result.stride() == planned.stride():
            return result
        return torch.empty_like(x, memory_format=made.layout).copy_(result)

    def forward(x: Tensor, weight: Tensor | None, bias: Tensor | None, *constants: Any) -> Any:
        y, stats = compute(_find(x), kernel, x, weight, bias, *constants)
        return laid_out(y, x), stats

    def backward(
        dy: Tensor, x: Tensor, stats: Tensor, weight: Tensor | None, needs: Any, *constants: Any
    ) -> tuple[Tensor, ...]:
        name = f"{kernel}_backward"
        dx, *sums = compute(_find(x), name, dy, x, stats, weight, tuple(needs), *constants)
        found = (None if dx is None else laid_out(dx, x), *sums)
        return tuple(
            # an operator returns no None; float32 as the fake below says
            (g if i == 0 else g.to(torch.float32, copy=True))
            if g is not None
            else x.new_empty(0, dtype=torch.float32)
            for i, g in enumerate(found)
        )

    def fake_forward(x: Tensor, weight: Any, bias: Any, *constants: Any) -> Any:
        shape = made.statistics(x, *constants)
        y = torch.empty_like(x, memory_format=made.layout)
        return y, x.new_empty(shape, dtype=torch.float32)

    def fake_backward(
        dy: Tensor, x: Tensor, stats: Tensor, weight: Any, needs: Any, *constants: Any
    ) -> tuple[Tensor, ...]:
        size = made.parameters(x, *constants)
        dx = torch.empty_like(x, memory_format=made.layout)
        dweight, dbias = (
            x.new_empty(size if need else 0, dtype=torch.float32) for need in needs[1:]
        )
        return dx if needs[0] else x.new_empty(0, dtype=torch.float32), dweight, dbias

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, weight, bias, *ctx.constants = inputs
        ctx.save_for_backward(x, weight, output[1])
        ctx.bias = None if bias is None else (bias.shape, bias.dtype)
        ctx.set_materialize_grads(False)

    def differentiate(ctx: Any, dy: Tensor, _: Any) -> tuple[Any, ...]:
        x, weight, stats = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        operator = getattr(torch.ops.normlab, f"{kernel}_backward")
        dx, dweight, dbias = operator(dy, x, stats, weight, list(needs), *ctx.constants)
        return (
            dx if needs[0] else None,
            dweight.to(weight.dtype).view(weight.shape) if needs[1] else None,
            dbias.to(ctx.bias[1]).view(ctx.bias[0]) if needs[2] else None,
            *(None for _ in ctx.constants),
        )

    schema = f"(Tensor x, Tensor? weight, Tensor? bias, {made.constants}) -> (Tensor, Tensor)"
    operator = torch.library.custom_op(name, forward, mutates_args=(), schema=schema)
    operator.register_fake(fake_forward)
    operator.register_autograd(differentiate, setup_context=keep)
    schema = (
        "(Tensor dy, Tensor x, Tensor stats, Tensor? weight, bool[] needs, "
        f"{made.constants}) -> (Tensor, Tensor, Tensor)"
    )
    operator = torch.library.custom_op(f"{name}_backward", backward, mutates_args=(), schema=schema)
    operator.register_fake(fake_backward)


for _kernel in _OPERATORS:
    _register(_kernel)
# of this module, which gives them below
KERNELS = Kernels("operators", "cpu", sys.modules[__name__], traced=True)
layer_norm, rms_norm = torch.ops.normlab.layer_norm, torch.ops.normlab.rms_norm
batch_norm, group_norm = torch.ops.normlab.batch_norm, torch.ops.normlab.group_norm
