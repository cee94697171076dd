"""LayerNorm: each sample is normalized over its own features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype, affine, standardize
from normlab.layers.validation import as_shape, check_dtypes, check_normalized_shape


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
        input: (\*, normalized_shape), floating; the output has its shape and dtype.
        normalized_shape: the last sizes of `input`; their product is H.
        weight: factors of that shape, or None for 1.
        bias: summands of that shape, or None for 0.
        eps: in units of x².

    Raises:
        ShapeError: `normalized_shape` is empty or does not end the input's shape, or a
            parameter has another shape.
        DtypeError: integer input, or parameters of an unfit dtype.

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
    x_hat, _, _ = standardize(x, range(-len(shape), 0), eps)
    return affine(x_hat, weight, bias).to(input.dtype)


class LayerNorm(nn.Module):
    """:func:`layer_norm` as a module, with the signature of :class:`torch.nn.LayerNorm`.

    An int stands for one axis. Weight 1 and bias 0 at the start, as in ba2016layer, Section 6;
    `elementwise_affine=False` leaves out both, `bias=False` the bias.
    """

    weight: nn.Parameter  # or None, and so the bias
    bias: nn.Parameter

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
        self.normalized_shape = as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        empty = torch.empty(self.normalized_shape, device=device, dtype=dtype)
        has_bias = elementwise_affine and bias
        self.register_parameter("weight", nn.Parameter(empty) if elementwise_affine else None)
        self.register_parameter("bias", nn.Parameter(empty.clone()) if has_bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0."""
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )
