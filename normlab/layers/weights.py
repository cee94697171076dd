"""Norms of weights instead of activations, on :mod:`torch.nn.utils.parametrize`."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from normlab.layers.standardization import standardize

Module = TypeVar("Module", bound=nn.Module)


def _rows(weight: Tensor, dim: int) -> tuple[int, ...]:
    """All axes but the one of the outputs."""
    return tuple(axis for axis in range(weight.dim()) if axis != dim % weight.dim())


class _WeightNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return g * v / torch.linalg.vector_norm(v, dim=_rows(v, self.dim), keepdim=True)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        rows = _rows(weight, self.dim)
        return torch.linalg.vector_norm(weight, dim=rows, keepdim=True), weight


class _WeightStandardization(nn.Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, v: Tensor) -> Tensor:
        return standardize(v, _rows(v, self.dim), self.eps)[0]

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


def _check_weight(module: nn.Module, name: str, dim: int) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(
            f"name: {type(module).__name__} has no tensor {name!r}; expected the name of a "
            "parameter, such as 'weight'"
        )
    if weight.dim() < 2 or not -weight.dim() <= dim < weight.dim():
        raise ValueError(
            f"{name}, dim: got shape {tuple(weight.shape)} and {dim}; expected a matrix or filters "
            "and the axis of its outputs, such as 0"
        )
    return weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    r"""Write each row of a weight as a length times a direction, and learn the two.

    .. math:: w_i = g_i \frac{v_i}{\lVert v_i \rVert}

    Args:
        module: with a matrix or filters; changed in place.
        name: of the weight.
        dim: the axis of the outputs; a row holds all that belongs to one of them.

    Returns:
        `module`, whose parameter `name` is computed from `parametrizations.NAME.original0` (g)
        and `original1` (v), as ``torch.nn.utils.parametrizations.weight_norm`` has it. Its
        output is what it was.

    Raises:
        ValueError: there is no such weight, or it has fewer than two axes.

    Conventions:
        no eps: a row of zeros gives NaN.

    Source:
        salimans2016weight, Eq. 2.

    Example:
        >>> layer = weight_norm(torch.nn.Linear(2, 1, bias=False))
        >>> [name for name, _ in layer.named_parameters()]
        ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    _check_weight(module, name, dim)
    parametrize.register_parametrization(module, name, _WeightNorm(dim))
    return module


@torch.no_grad()
def weight_norm_init_(module: Module, input: Tensor) -> Module:
    r"""Set lengths and bias so that the outputs for one batch have mean 0 and variance 1.

    .. math:: g = \frac{1}{\sigma[t]}, \quad b = -\frac{\mu[t]}{\sigma[t]}, \qquad
              t = \frac{v \cdot x}{\lVert v \rVert}

    Args:
        module: a linear or convolutional layer with :func:`weight_norm` on its weight and with a
            bias; changed in place.
        input: one batch of its inputs.

    Returns:
        `module`.

    Raises:
        ValueError: no weight norm, no bias, or an output that does not vary.

    Source:
        salimans2016weight, Eq. 5 and 6.
    """
    normed = getattr(module, "parametrizations", None)
    bias = getattr(module, "bias", None)
    normed = normed["weight"] if normed is not None and "weight" in normed else None
    if normed is None or not isinstance(normed[0], _WeightNorm) or bias is None:
        raise ValueError(
            "module: expected a layer with a bias and with weight norm on its weight; call "
            "weight_norm(module) first"
        )
    g = normed.original0
    g.fill_(1)
    bias.zero_()
    t = module(input)
    channel = -1 if isinstance(module, nn.Linear) else 1
    reduced = tuple(axis for axis in range(t.dim()) if axis != channel % t.dim())
    mean = t.mean(reduced, keepdim=True)
    std = (t - mean).square().mean(reduced).sqrt()
    if not (std > 0).all():
        raise ValueError("input: an output does not vary over it; expected more or other samples")
    g.copy_((1 / std).view(g.shape))
    bias.copy_(-mean.flatten() / std)
    return module


def weight_standardization(
    module: Module, name: str = "weight", dim: int = 0, eps: float = 1e-5
) -> Module:
    r"""Give each filter mean 0 and variance 1 over its inputs, whenever it is used.

    .. math:: \hat w_i = \frac{w_i - \overline{w_i}}{\sqrt{\mathrm{var}(w_i) + \epsilon}}

    The arguments are those of :func:`weight_norm`, and `eps` in units of w².

    Returns:
        `module`, whose parameter `name` is computed from `parametrizations.NAME.original`. Its
        output changes at once.

    Raises:
        ValueError: there is no such weight, it has fewer than two axes, or `eps` is negative.

    Conventions:
        divisor n and `eps` inside the root. The authors' code takes n - 1 and adds `eps` to the
        root; timm has n and 1e-6 inside. Nothing new is learned.

    Source:
        qiao2019micro.

    Example:
        >>> layer = weight_standardization(torch.nn.Conv2d(3, 4, 3))
        >>> bool(layer.weight.mean((1, 2, 3)).abs().max() < 1e-6)
        True
    """
    _check_weight(module, name, dim)
    if eps < 0:
        raise ValueError(f"eps: got {eps}; expected eps >= 0")
    parametrize.register_parametrization(module, name, _WeightStandardization(dim, eps))
    return module
