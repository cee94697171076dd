"""The norms that kernels compute, called alike: f(x, weight, bias) for one case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from normlab import kernels, layers

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Call:
    """A norm with its fixed arguments, an input's shape, and the parameters that it takes."""

    name: str
    shape: tuple[int, ...]
    parameter_shape: tuple[int, ...]
    arguments: Callable[[Tensor | None, Tensor | None], tuple[Any, ...]]
    has_bias: bool = True

    def __str__(self) -> str:
        return f"{self.name}{list(self.shape)}"

    def ours(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return self.by(kernels, x, weight, bias)

    def layer(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return self.by(layers, x, weight, bias)

    def by(
        self, module: Any, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        """The norm of `normlab.layers`, of `normlab.kernels` or of a back end."""
        return getattr(module, self.name)(x, *self.arguments(weight, bias))

    def theirs(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return getattr(F, self.name)(x, *self.arguments(weight, bias))

    def tensors(
        self, dtype: torch.dtype = torch.float32, *, mean: float = 0.0, rms: float = 1.0
    ) -> tuple[list[Tensor], Tensor]:
        """Input, weight and bias away from 0 and 1, and an upstream gradient."""
        g = torch.Generator().manual_seed(0)

        def normal(shape: tuple[int, ...]) -> Tensor:
            return torch.randn(shape, generator=g, dtype=torch.float64)

        made = [mean + rms * normal(self.shape), 1.5 + 0.5 * normal(self.parameter_shape)]
        if self.has_bias:
            made.append(-0.7 + 0.5 * normal(self.parameter_shape))
        return [t.to(dtype) for t in made], normal(self.shape).to(dtype)


def layer(*shape: int, normalized: int = 1) -> Call:
    rest = shape[-normalized:]
    return Call("layer_norm", shape, rest, lambda w, b: (rest, w, b, 1e-5))


def rms(*shape: int) -> Call:
    rest = shape[-1:]
    return Call("rms_norm", shape, rest, lambda w, b: (rest, w, 1e-5), has_bias=False)


def batch(*shape: int) -> Call:
    arguments = lambda w, b: (None, None, w, b, True, 0.1, 1e-5)  # noqa: E731
    return Call("batch_norm", shape, shape[1:2], arguments)


def group(groups: int, *shape: int) -> Call:
    return Call("group_norm", shape, shape[1:2], lambda w, b: (groups, w, b, 1e-5))


def instance(*shape: int) -> Call:
    arguments = lambda w, b: (None, None, w, b, True, 0.1, 1e-5)  # noqa: E731
    return Call("instance_norm", shape, shape[1:2], arguments)


# One column, one row, ragged in the vectors, in the blocks and in the chunks, more than one block.
CALLS = [
    *(f(*shape) for f in (layer, rms) for shape in ((1, 9), (5, 1), (3, 4), (33, 7), (65, 100))),
    *(f(*shape) for f in (layer, rms) for shape in ((2, 3, 32), (7, 1100), (3000, 96))),
    *(f(3, 20000) for f in (layer, rms)),  # sums that float32 alone would not hold
    layer(2, 5, 3, 4, normalized=2),
    *(batch(*shape) for shape in ((5, 1), (40, 6), (3, 5, 7), (6, 33, 9, 5), (3000, 96))),
    *(group(g, *shape) for g, shape in ((2, (3, 6)), (4, (3, 8, 5)), (3, (2, 12, 33, 70)))),
    *(instance(*shape) for shape in ((3, 5, 7), (2, 4, 9, 5))),
    batch(16, 12, 40, 40),
    group(4, 16, 12, 40, 40),
]
LARGE = [call for call in CALLS if torch.Size(call.shape).numel() > 2e5]
SMALL = [call for call in CALLS if torch.Size(call.shape).numel() <= 300]


def gradients(function: Function, tensors: list[Tensor], dy: Tensor) -> list[Tensor]:
    """The output and the gradient of each tensor."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, dy)]


def oracle(call: Call, tensors: list[Tensor], dy: Tensor) -> list[Tensor]:
    """The same by torch, in float64."""
    return gradients(call.theirs, [t.double() for t in tensors], dy.double())


def relative_error(got: Tensor, expected: Tensor) -> float:
    """Largest error over the largest value."""
    return float((got.double() - expected).abs().max() / expected.abs().max())
