"""RMSNorm: each sample is divided by its root mean square; no mean is subtracted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype
from normlab.layers.validation import DtypeError, check_normalized_shape


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


def prms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    p: float = 0.0625,
) -> Tensor:
    r"""Divide each sample by the root mean square of its first features only.

    .. math:: y = \frac{x}{\sqrt{\frac1k \sum_{i \le k} x_i^2 + \epsilon}} \odot w, \qquad
              k = \lceil p H \rceil

    Args:
        input: a floating (or complex) tensor.
        normalized_shape: the last sizes of `input`; their product is H, and their cells are
            counted in the order in which they are stored.
        weight: factor per feature, or None for 1.
        eps: as in :func:`rms_norm`.
        p: the part of the features that the mean square is taken from.

    Shape:
        input (\*, normalized_shape); weight normalized_shape; returns the shape of `input`.

    Raises:
        ShapeError: as in :func:`rms_norm`.
        DtypeError: integer input.
        ValueError: `p` is not above 0 and at most 1.

    Units:
        `eps` has the units of x².

    Conventions:
        as in :func:`rms_norm`. The authors' code rounds k down, which gives k = 0 for fewer
        than 1/p features; the paper's formula rounds up.

    Source:
        zhang2019root, Section 5.

    Example:
        >>> prms_norm(torch.tensor([[2.0, 5.0, -1.0, 4.0]]), (4,), eps=0.0, p=0.25)
        tensor([[ 1.0000,  2.5000, -0.5000,  2.0000]])
    """
    shape = check_normalized_shape(input, normalized_shape, weight=weight)
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        raise DtypeError(
            f"input: got {input.dtype}; expected a floating dtype. Convert with input.float()"
        )
    if not 0 < p <= 1:
        raise ValueError(f"p: got {p}; expected a part of the features, above 0 and at most 1")
    x = input.to(accumulation_dtype(input.dtype))
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    # Rounded first: 0.07 * 100 is a little above 7 in floating point.
    k = math.ceil(round(p * math.prod(shape), 9))
    first = x.flatten(-len(shape))[..., :k]
    mean_square = first.square().mean(-1)[(...,) + (None,) * len(shape)]
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
