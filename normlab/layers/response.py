"""Norms over the positions of a channel without a mean: filter and global response norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype, affine, channel_shape
from normlab.layers.validation import ShapeError, check_channel_vector, check_positions


def filter_response_norm(
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    eps: float | Tensor = 1e-6,
) -> Tensor:
    r"""Divide each channel of a sample by its root mean square, and cut it off from below.

    .. math::

       y &= \max\!\left(\frac{x}{\sqrt{\nu^2 + |\epsilon|}} \, w_c + b_c, \; \tau_c\right) \\
       \nu^2 &= \frac1P \sum_p x_p^2

    Args:
        input: (N, C, \*) with positions, floating; the output has its shape and dtype.
        weight: factors (C,), or None for 1.
        bias: summands (C,), or None for 0.
        threshold: lower bounds (C,) of the thresholded linear unit, or None for none.
        eps: in units of x²; a number, or a learned tensor () or (C,), whose magnitude is taken.

    Raises:
        ShapeError: no positions, or a parameter that is not (C,).
        DtypeError: integer input.

    Conventions:
        no mean is subtracted. At one position the fraction is near the sign of x, whatever its
        size; `eps` is learned there. 16-bit input is computed in float32 and rounded once.

    Source:
        singh2020filter.

    Example:
        >>> x = torch.tensor([[[3.0, -3.0, 3.0]]])
        >>> filter_response_norm(x, threshold=torch.zeros(1), eps=0.0)
        tensor([[[1., 0., 1.]]])
    """
    positions = check_positions(input)
    check_channel_vector(input, weight=weight, bias=bias, threshold=threshold)
    x = input.to(accumulation_dtype(input.dtype))
    shape = channel_shape(input)
    floor = eps.abs().reshape(shape).to(x.dtype) if isinstance(eps, Tensor) else abs(eps)
    y = x * torch.rsqrt(x.square().mean(positions, keepdim=True) + floor)
    y = affine(y, weight, bias, shape)
    if threshold is not None:
        y = torch.maximum(y, threshold.view(shape).to(y.dtype))
    return y.to(input.dtype)


def global_response_norm(
    input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-6
) -> Tensor:
    r"""Strengthen the channels that are long beside their neighbors, and add the input.

    .. math::

       y &= x + w_c \, x \, \frac{G_c}{\frac1C \sum_k G_k + \epsilon} + b_c \\
       G_c &= \sqrt{\sum_p x_p^2}

    Args:
        input: (N, C, \*) with positions, floating; the output has its shape and dtype.
        weight: factors (C,), or None for 1.
        bias: summands (C,), or None for 0.
        eps: added to the mean length; in units of x, not of x².

    Raises:
        ShapeError: no positions, or a parameter that is not (C,).
        DtypeError: integer input.

    Conventions:
        channels second, where the authors' code has them last. The size of the input stays in
        the output: for `eps` = 0 and no bias, twice the input gives twice the output. 16-bit
        input is computed in float32 and rounded once.

    Source:
        woo2023convnext.

    Example:
        >>> x = torch.tensor([[[[1.0]], [[3.0]]]])
        >>> global_response_norm(x, eps=0.0).flatten()
        tensor([1.5000, 7.5000])
    """
    positions = check_positions(input)
    check_channel_vector(input, weight=weight, bias=bias)
    x = input.to(accumulation_dtype(input.dtype))
    length = torch.linalg.vector_norm(x, dim=positions, keepdim=True)
    y = x * (length / (length.mean(1, keepdim=True) + eps))
    return (x + affine(y, weight, bias, channel_shape(input))).to(input.dtype)


def _check_channels(input: Tensor, num_channels: int) -> None:
    if input.dim() < 2 or input.shape[1] != num_channels:
        raise ShapeError(
            f"input: got shape {tuple(input.shape)}; expected (N, {num_channels}, *), channels "
            "second. Move a last axis of channels with input.movedim(-1, 1)"
        )


class FilterResponseNorm(nn.Module):
    """:func:`filter_response_norm` as a module, with its thresholded linear unit; eps is fixed."""

    def __init__(
        self,
        num_channels: int,
        eps: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_channels = num_channels
        self.eps = eps
        empty = torch.empty(num_channels, device=device, dtype=dtype)
        self.weight = nn.Parameter(empty)
        self.bias = nn.Parameter(empty.clone())
        self.threshold = nn.Parameter(empty.clone())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1, bias and threshold to 0."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)
        nn.init.zeros_(self.threshold)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        _check_channels(input, self.num_channels)
        return filter_response_norm(input, self.weight, self.bias, self.threshold, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_channels}, eps={self.eps}"


class GlobalResponseNorm(nn.Module):
    """:func:`global_response_norm` as a module; weight and bias start at 0, the identity."""

    def __init__(
        self,
        num_channels: int,
        eps: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_channels = num_channels
        self.eps = eps
        empty = torch.empty(num_channels, device=device, dtype=dtype)
        self.weight = nn.Parameter(empty)
        self.bias = nn.Parameter(empty.clone())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight and bias to 0, which gives the identity."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        _check_channels(input, self.num_channels)
        return global_response_norm(input, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_channels}, eps={self.eps}"
