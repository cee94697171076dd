"""How many operations are LayerNorm and RMSNorm, as torch sees them, forward and backward?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm
from torch.nn.functional import rms_norm as torch_rms_norm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from normlab.book.experiments.sweep import experiment

Norm = Callable[[Tensor, Tensor, Tensor], Tensor]
Name = Literal["layer_norm, composed", "rms_norm, composed", "layer_norm, torch", "rms_norm, torch"]

# They return a view of their input, or give nothing but memory: no arithmetic is done.
_VIEWS = {"_unsafe_view", "alias", "as_strided", "detach", "expand", "t", "transpose", "view"}
_FREE = _VIEWS | {"empty", "squeeze", "unsqueeze"}


def compose_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """LayerNorm as a reader of the formula writes it, one torch operation for each sign."""
    centered = x - x.mean(-1, keepdim=True)
    var = centered.square().mean(-1, keepdim=True)
    return centered * torch.rsqrt(var + 1e-5) * weight + bias


def compose_rms_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """RMSNorm written the same way; `bias` is not used."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


NORMS: dict[Name, Norm] = {
    "layer_norm, composed": compose_layer_norm,
    "rms_norm, composed": compose_rms_norm,
    "layer_norm, torch": lambda x, w, b: torch_layer_norm(x, x.shape[-1:], w, b, 1e-5),
    "rms_norm, torch": lambda x, w, b: torch_rms_norm(x, x.shape[-1:], w, 1e-5),
}


class _Count(TorchDispatchMode):
    """Collects the operations that reach a kernel, and the elements that they touch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in _FREE:
            self.names.append(name)
            touched = tree_leaves((args, kwargs, out))
            self.elements += sum(t.numel() for t in touched if isinstance(t, Tensor))
        return out


@experiment(norm=get_args(Name))
def norm_operations(norm: Name) -> dict[str, Any]:
    """Count what torch dispatches for one norm, forward and backward, on CPU.

    Args:
        norm: name in :data:`NORMS`.

    Returns:
        forward: names of the operations, in order, without views and allocations.
        backward: the same for the backward pass.
        forward_traffic: elements read and written by the operations of the forward pass, for
            each element of the input.
        backward_traffic: the same for the backward pass.
    """
    generator = torch.Generator().manual_seed(0)
    x, dy = torch.randn(2, 64, 256, generator=generator)
    weight, bias = torch.randn(2, 256, generator=generator)
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    with _Count() as forward:
        y = NORMS[norm](*leaves)
    with _Count() as backward:
        torch.autograd.grad(y, leaves, dy, allow_unused=True)
    return {
        "forward": forward.names,
        "backward": backward.names,
        "forward_traffic": forward.elements / x.numel(),
        "backward_traffic": backward.elements / x.numel(),
    }
