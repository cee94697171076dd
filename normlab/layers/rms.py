"""RMSNorm: each sample is divided by its root mean square; no mean is subtracted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype, affine
from normlab.layers.validation import as_shape, check_floating, check_normalized_shape


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    r"""Divide each sample by the root mean square of its trailing `normalized_shape`.

    .. math:: y = \frac{x}{\sqrt{\frac1H \sum_i x_i^2 + \epsilon}} \odot w

    Args:
        input: (\*, normalized_shape), floating or complex; the output has its shape and dtype.
        normalized_shape: the last sizes of `input`; their product is H.
        weight: factors of that shape, or None for 1.
        eps: in units of x²; None takes the machine epsilon of the dtype that the sum is
            computed in (float32's for 16-bit input).

    Raises:
        ShapeError: `normalized_shape` is empty or does not end the input's shape, or `weight`
            has another shape.
        DtypeError: integer input.

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
    check_floating(input, or_complex=True)
    x = input.to(accumulation_dtype(input.dtype))
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    mean_square = x.square().mean(tuple(range(-len(shape), 0)), keepdim=True)
    return affine(x * torch.rsqrt(mean_square + eps), weight).to(input.dtype)


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

    Arguments, errors and conventions are those of :func:`rms_norm`; cells are counted in the order
    in which they are stored. The authors' code rounds k down, which gives k = 0 for fewer than 1/p
    features; the paper's formula rounds up.

    Args:
        p: the part of the features that the mean square is taken from.

    Raises:
        ValueError: `p` is not above 0 and at most 1.

    Source:
        zhang2019root, Section 5.

    Example:
        >>> prms_norm(torch.tensor([[2.0, 5.0, -1.0, 4.0]]), (4,), eps=0.0, p=0.25)
        tensor([[ 1.0000,  2.5000, -0.5000,  2.0000]])
    """
    shape = check_normalized_shape(input, normalized_shape, weight=weight)
    check_floating(input, or_complex=True)
    if not 0 < p <= 1:
        raise ValueError(f"p: got {p}; expected a part of the features, above 0 and at most 1")
    x = input.to(accumulation_dtype(input.dtype))
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    # Rounded first: 0.07 * 100 is a little above 7 in floating point.
    k = math.ceil(round(p * math.prod(shape), 9))
    first = x.flatten(-len(shape))[..., :k]
    mean_square = first.square().mean(-1)[(...,) + (None,) * len(shape)]
    return affine(x * torch.rsqrt(mean_square + eps), weight).to(input.dtype)


class RMSNorm(nn.Module):
    """:func:`rms_norm` as a module, with the signature of :class:`torch.nn.RMSNorm`.

    An int stands for one axis. The weight starts at 1; `elementwise_affine=False` leaves it out.
    """

    weight: nn.Parameter  # or None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = nn.Parameter(torch.empty(self.normalized_shape, device=device, dtype=dtype))
        self.register_parameter("weight", weight if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1."""
        if self.weight is not None:
            nn.init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        return rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )
