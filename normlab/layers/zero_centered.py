"""RMS norm with a zero-centered weight: the factor is one plus what is learned."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normlab.layers.rms import rms_norm
from normlab.layers.standardization import accumulation_dtype
from normlab.layers.validation import as_normalized_shape


class ZeroCenteredRMSNorm(nn.Module):
    r"""RMS norm whose factor is 1 + w, with w = 0 at the start.

    .. math:: y = \frac{x}{\sqrt{\frac1H \sum_i x_i^2 + \epsilon}} \odot (1 + w)

    "Zero-centered" is said of the weight; no mean is subtracted from x. Weight decay pulls the
    factor towards 1 instead of 0, and a 16-bit w holds changes that 1 + w could not.

    Args:
        normalized_shape: the last sizes of the input; an int stands for one axis.
        eps: units of x².
        device: of the weight.
        dtype: of the weight.

    Shape:
        input (\*, normalized_shape); returns the same shape.

    Conventions:
        1 + w is formed in float32 for 16-bit weights, where w = 1e-3 would be lost in bfloat16;
        the product is rounded once, to the dtype of the input.

    Source:
        zhang2019root, Eq. 4, for the norm; the factor is that of the Gemma models.

    Example:
        >>> norm = ZeroCenteredRMSNorm(2, eps=0.0)
        >>> norm(torch.tensor([[1.0, 7.0]])).detach()
        tensor([[0.2000, 1.4000]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = as_normalized_shape(normalized_shape)
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(self.normalized_shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 0, a factor of 1."""
        nn.init.zeros_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        x = input.to(accumulation_dtype(input.dtype))
        weight = self.weight.to(accumulation_dtype(self.weight.dtype))
        return rms_norm(x, self.normalized_shape, 1 + weight, self.eps).to(input.dtype)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"
