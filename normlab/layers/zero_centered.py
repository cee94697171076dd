"""RMS norm with a zero-centered weight: the factor is one plus what is learned."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normlab.layers.rms import rms_norm
from normlab.layers.standardization import accumulation_dtype
from normlab.layers.validation import as_shape


def zero_centered_rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = 1e-6,
) -> Tensor:
    r"""Divide each sample by its root mean square and multiply it by one plus the weight.

    .. math:: y = \frac{x}{\sqrt{\frac1H \sum_i x_i^2 + \epsilon}} \odot (1 + w)

    Arguments and errors are those of :func:`rms_norm`; a weight of None stands for 0.

    Conventions:
        1 + w is formed in float32 for 16-bit weights, where w = 1e-3 would be lost in bfloat16;
        the product is rounded once, to the dtype of the input.

    Source:
        zhang2019root, Eq. 4, for the norm; the factor is that of the Gemma models.

    Example:
        >>> x, w = torch.tensor([[1.0, 7.0]]), torch.tensor([0.0, 1.0])
        >>> zero_centered_rms_norm(x, (2,), w, eps=0.0)
        tensor([[0.2000, 2.8000]])
    """
    x = input.to(accumulation_dtype(input.dtype))
    factor = None if weight is None else 1 + weight.to(accumulation_dtype(weight.dtype))
    return rms_norm(x, normalized_shape, factor, eps).to(input.dtype)


class ZeroCenteredRMSNorm(nn.Module):
    """:func:`zero_centered_rms_norm` as a module, with w = 0 at the start.

    "Zero-centered" is said of the weight; no mean is subtracted from x. Weight decay pulls the
    factor towards 1 instead of 0, and a 16-bit w holds changes that 1 + w could not.

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
        self.normalized_shape = as_shape(normalized_shape)
        self.eps = eps
        empty = torch.empty(self.normalized_shape, device=device, dtype=dtype)
        self.weight = nn.Parameter(empty)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 0, a factor of 1."""
        nn.init.zeros_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        return zero_centered_rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"
