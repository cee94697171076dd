"""Which uses a layer norm survives: as operations, as a bare kernel, and as `normlab.kernels`."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from normlab import kernels, layers
from normlab.kernels import chunked
from normlab.kernels.differentiation import apply

Norm = Callable[[Tensor], Tensor]
SIZE = 40
USES = ("forward", "backward", "second derivative", "vmap", "jvp", "compiled graph")


def _torch(x: Tensor, *_: Tensor | None) -> Tensor:
    return F.layer_norm(x, (SIZE,))


def composition(x: Tensor) -> Tensor:
    """Layer norm as operations of torch."""
    return layers.layer_norm(x, (SIZE,))


def bare_kernel(x: Tensor) -> Tensor:
    """The chunked kernel under `torch.autograd.Function`, and nothing around it."""
    return apply(chunked.kernels(), "layer_norm", _torch, x, None, None, SIZE, 1e-5)[0]


def routed(x: Tensor) -> Tensor:
    """Layer norm of `normlab.kernels`, which calls the layer for what a kernel cannot do."""
    return kernels.layer_norm(x, (SIZE,))


def list_uses(norm: Norm) -> dict[str, str]:
    """Try each use of a norm of rows of `SIZE` values, and compare with torch in float64.

    Returns:
        use -> "right", "wrong" or "refused".
    """
    g = torch.Generator().manual_seed(0)
    x, v = (torch.randn(6, SIZE, generator=g) for _ in range(2))
    return {use: _verdict(_USES[use], norm, x, v) for use in USES}


def _verdict(use: Callable[..., Tensor], norm: Norm, x: Tensor, v: Tensor) -> str:
    plain = use if use is not _compiled else _forward
    expected = plain(_torch, x.double(), v.double())
    try:
        found = use(norm, x, v)
    except Exception:  # each use refuses in a way of its own
        return "refused"
    near = float((found - expected).abs().max()) < 1e-4 * float(expected.abs().max())
    return "right" if near else "wrong"


def _forward(norm: Norm, x: Tensor, v: Tensor) -> Tensor:
    return norm(x)


def _backward(norm: Norm, x: Tensor, v: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(norm(x), x, v)[0]


def _second(norm: Norm, x: Tensor, v: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    first = torch.autograd.grad(norm(x), x, v, create_graph=True)[0]
    return torch.autograd.grad(first.square().sum(), x)[0]


def _vmap(norm: Norm, x: Tensor, v: Tensor) -> Tensor:
    # as in training, where the input comes from a layer with weights
    return torch.func.vmap(norm)(torch.stack([x, v]).requires_grad_()).detach()


def _jvp(norm: Norm, x: Tensor, v: Tensor) -> Tensor:
    with torch.autograd.forward_ad.dual_level():
        x = x.clone().requires_grad_()
        dual = norm(torch.autograd.forward_ad.make_dual(x, v))
        tangent = torch.autograd.forward_ad.unpack_dual(dual).tangent
        return torch.zeros_like(x) if tangent is None else tangent.detach()


def _compiled(norm: Norm, x: Tensor, v: Tensor) -> Tensor:
    torch._dynamo.reset()
    whole = torch.compile(norm, fullgraph=True, backend="eager")
    return whole(x.clone().requires_grad_()).detach()


_USES = dict(zip(USES, (_forward, _backward, _second, _vmap, _jvp, _compiled), strict=True))
