"""GroupNorm: each sample is normalized over groups of its channels and all positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype, affine, channel_shape, standardize
from normlab.layers.validation import ShapeError, check_channel_vector, check_dtypes


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    r"""Normalize each sample over groups of consecutive channels and all positions.

    .. math:: y = \frac{x - \mu_{ng}}{\sqrt{\sigma^2_{ng} + \epsilon}} \, w_c + b_c

    Args:
        input: (N, C, \*), floating; the output has its shape and dtype.
        num_groups: divides C; 1 pools all channels, C makes it instance norm.
        weight: factors (C,), or None for 1.
        bias: summands (C,), or None for 0.
        eps: in units of x².

    Raises:
        ShapeError: fewer than two axes, `num_groups` not a positive divisor of C, a single
            value per group and no second group to compare, or a parameter that is not (C,).
        DtypeError: integer input, or parameters of an unfit dtype.

    Conventions:
        divisor C/G times the positions; `eps` inside the root; one weight per channel, not
        per group; 16-bit input is computed in float32 and rounded once.

    Source:
        wu2018group, Eq. 1, 2 and 7.

    Example:
        >>> group_norm(torch.tensor([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0)
        tensor([[-1.,  1., -1.,  1.]])
    """
    check_channel_vector(input, weight=weight, bias=bias)
    batch, channels = input.shape[:2]
    _check_groups(num_groups, channels, "an input with ")
    positions = math.prod(input.shape[2:])
    if batch * channels // num_groups * positions == 1:
        raise ShapeError(
            f"input: got shape {tuple(input.shape)} with num_groups={num_groups}, one value per "
            "group, whose variance is 0; expected more than one. Use fewer groups"
        )
    check_dtypes(input, weight=weight, bias=bias)
    x = input.to(accumulation_dtype(input.dtype))
    grouped = x.reshape(batch, num_groups, channels // num_groups * positions)  # (N, G, *)
    x_hat, _, _ = standardize(grouped, (2,), eps)
    y = affine(x_hat.reshape(input.shape), weight, bias, channel_shape(input))
    return y.to(input.dtype)


def _check_groups(num_groups: int, channels: int, of: str = "") -> None:
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(
            f"num_groups: got {num_groups} for {of}{channels} channels; "
            "expected a positive divisor of the channels"
        )


class GroupNorm(nn.Module):
    """:func:`group_norm` as a module, with the signature of :class:`torch.nn.GroupNorm`.

    `affine=False` leaves out weight and bias, `bias=False` the bias.

    Raises:
        ShapeError: `num_groups` is not a positive divisor of `num_channels`.
    """

    weight: nn.Parameter  # or None, and so the bias
    bias: nn.Parameter

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        _check_groups(num_groups, num_channels)
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        empty = torch.empty(num_channels, device=device, dtype=dtype)
        self.register_parameter("weight", nn.Parameter(empty) if affine else None)
        self.register_parameter("bias", nn.Parameter(empty.clone()) if affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0."""
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
