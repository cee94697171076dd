"""GroupNorm: each sample is normalized over groups of its channels and all positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype, standardize
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
        input: (N, C, \*).
        num_groups: divides C; 1 pools all channels, C makes it instance norm.
        weight: factor per channel, or None for 1.
        bias: summand per channel, or None for 0.
        eps: keeps the root away from zero.

    Shape:
        input (N, C, \*); weight and bias (C,); returns the shape of `input`.

    Raises:
        ShapeError: fewer than two axes, `num_groups` not a positive divisor of C, a single
            value per group and no second group to compare, or a parameter that is not (C,).
        DtypeError: integer input, or parameters of an unfit dtype.

    Units:
        `eps` has the units of x².

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
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(
            f"num_groups: got {num_groups} for an input with {channels} channels; "
            "expected a positive divisor of the channels"
        )
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
    y = x_hat.reshape(input.shape)
    per_channel = (1, -1) + (1,) * (input.dim() - 2)
    if weight is not None:
        y = y * weight.view(per_channel)
    if bias is not None:
        y = y + bias.view(per_channel)
    return y.to(input.dtype)


class GroupNorm(nn.Module):
    r"""Module around :func:`group_norm`, with the signature of :class:`torch.nn.GroupNorm`.

    Args:
        num_groups: divides `num_channels`.
        num_channels: C.
        eps: keeps the root away from zero; units of x².
        affine: learn a weight (and bias) per channel.
        device: of the parameters.
        dtype: of the parameters.
        bias: learn a bias; without effect if `affine` is False.

    Shape:
        input (N, C, \*); returns the same shape.

    Raises:
        ShapeError: `num_groups` is not a positive divisor of `num_channels`.

    Source:
        wu2018group, Eq. 7.
    """

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
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                f"num_groups: got {num_groups} for {num_channels} channels; "
                "expected a positive divisor of num_channels"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        if affine:
            self.weight = nn.Parameter(torch.empty(num_channels, device=device, dtype=dtype))
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
        """Normalize `input`; see :func:`group_norm`."""
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
