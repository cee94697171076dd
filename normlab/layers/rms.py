"""RMSNorm: each sample is divided by its root mean square; no mean is subtracted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype
from normlab.layers.validation import DtypeError, check_normalized_shape

__all__ = ["RMSNorm", "rms_norm"]


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    r"""Divide each sample by the root mean square of its trailing `normalized_shape`.

    .. math:: y = \frac{x}{\sqrt{\frac1H \sum_i x_i^2 + \epsilon}} \odot w

    Args:
        input: a floating (or complex) tensor.
        normalized_shape: the last sizes of `input`; their product is H.
        weight: factor per feature, or None for 1.
        eps: keeps the root away from zero; None takes the machine epsilon of the dtype that
            the sum is computed in (float32's for 16-bit input).

    Shape:
        input (\*, normalized_shape); weight normalized_shape; returns the shape of `input`.

    Raises:
        ShapeError: `normalized_shape` is empty or does not end the input's shape, or `weight`
            has another shape.
        DtypeError: integer input.

    Units:
        `eps` has the units of x².

    Conventions:
        `eps` inside the root; 16-bit input is computed in float32, multiplied by the weight
        and only then rounded. The paper's formula has no `eps`.

    Source:
        zhang2019root, Eq. 4.

    Example:
        >>> rms_norm(torch.tensor([[3.0, 4.0]]), (2,), eps=0.0)
        tensor([[0.8485, 1.1314]])
    """
    shape = check_normalized_shape(input, normalized_shape, weight=weight)
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        raise DtypeError(
            f"input: got {input.dtype}; expected a floating dtype. Convert with input.float()"
        )
    x = input.to(accumulation_dtype(input.dtype))
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    mean_square = x.square().mean(tuple(range(-len(shape), 0)), keepdim=True)
    y = x * torch.rsqrt(mean_square + eps)
    if weight is not None:
        y = y * weight
    return y.to(input.dtype)


class RMSNorm(nn.Module):
    r"""Module around :func:`rms_norm`, with the signature of :class:`torch.nn.RMSNorm`.

    Args:
        normalized_shape: the last sizes of the input; an int stands for one axis.
        eps: units of x²; None for the machine epsilon, see :func:`rms_norm`.
        elementwise_affine: learn a weight per feature.
        device: of the weight.
        dtype: of the weight.

    Shape:
        input (\*, normalized_shape); returns the same shape.

    Source:
        zhang2019root, Eq. 4.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
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
        if elementwise_affine:
            self.weight = nn.Parameter(
                torch.empty(self.normalized_shape, device=device, dtype=dtype)
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1."""
        if self.weight is not None:
            nn.init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`; see :func:`rms_norm`."""
        return rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )
