"""LayerNorm: each sample is normalized over its own features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype, standardize
from normlab.layers.validation import check_dtypes, check_normalized_shape


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    r"""Normalize each sample over its trailing `normalized_shape`.

    .. math:: y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot w + b, \qquad
              \mu = \frac1H \sum_i x_i, \quad
              \sigma^2 = \frac1H \sum_i (x_i - \mu)^2

    Args:
        input: any floating tensor.
        normalized_shape: the last sizes of `input`; their product is H.
        weight: factor per feature, or None for 1.
        bias: summand per feature, or None for 0.
        eps: keeps the root away from zero.

    Shape:
        input (\*, normalized_shape); weight and bias normalized_shape; returns the shape of
        `input`.

    Raises:
        ShapeError: `normalized_shape` is empty or does not end the input's shape, or a
            parameter has another shape.
        DtypeError: integer input, or parameters of an unfit dtype.

    Units:
        `eps` has the units of x².

    Conventions:
        divisor H; `eps` inside the root; 16-bit input is computed in float32 and rounded
        once. The paper's formula has no `eps`.

    Source:
        ba2016layer, Eq. 3 and 4.

    Example:
        >>> layer_norm(torch.tensor([[1.0, 2.0, 3.0]]), (3,), eps=0.0)
        tensor([[-1.2247,  0.0000,  1.2247]])
    """
    shape = check_normalized_shape(input, normalized_shape, weight=weight, bias=bias)
    check_dtypes(input, weight=weight, bias=bias)
    x = input.to(accumulation_dtype(input.dtype))
    y, _, _ = standardize(x, range(-len(shape), 0), eps)
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y.to(input.dtype)


class LayerNorm(nn.Module):
    r"""Module around :func:`layer_norm`, with the signature of :class:`torch.nn.LayerNorm`.

    Args:
        normalized_shape: the last sizes of the input; an int stands for one axis.
        eps: keeps the root away from zero; units of x².
        elementwise_affine: learn a weight (and bias) per feature.
        bias: learn a bias; without effect if `elementwise_affine` is False.
        device: of the parameters.
        dtype: of the parameters.

    Shape:
        input (\*, normalized_shape); returns the same shape.

    Source:
        ba2016layer, Eq. 3 and 4; gain 1 and bias 0 at the start as in Section 6.

    Example:
        >>> LayerNorm(3, eps=0.0)(torch.tensor([[1.0, 2.0, 3.0]])).detach()
        tensor([[-1.2247,  0.0000,  1.2247]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if isinstance(normalized_shape, int):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        if elementwise_affine:
            self.weight = nn.Parameter(
                torch.empty(self.normalized_shape, device=device, dtype=dtype)
            )
            if bias:
                self.bias = nn.Parameter(torch.empty_like(self.weight))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0."""
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`; see :func:`layer_norm`."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )
