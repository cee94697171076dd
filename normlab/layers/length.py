"""ScaleNorm: each vector is brought to one learned length."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype, affine
from normlab.layers.validation import ShapeError, check_floating


def scale_norm(input: Tensor, weight: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    r"""Divide each vector by its length and multiply it by one number.

    .. math:: y = g \, \frac{x}{\max(\lVert x \rVert, \epsilon)}

    Args:
        input: (\*, D), floating; the output has its shape and dtype.
        weight: the length g of every output, () or (1,), or None for 1.
        eps: no vector is divided by less; in units of x, not of x².

    Raises:
        ShapeError: `input` has no axis, or `weight` is not one number.
        DtypeError: integer input.

    Conventions:
        the sum of squares, not their mean: with g = sqrt(D) this is RMSNorm with one weight for
        all features. 16-bit input is computed in float32 and rounded once.

    Source:
        nguyen2019transformers.

    Example:
        >>> scale_norm(torch.tensor([[3.0, 4.0]]), torch.tensor(10.0))
        tensor([[6., 8.]])
    """
    check_floating(input)
    if input.dim() == 0:
        raise ShapeError("input: got one number; expected vectors along the last axis, (*, D)")
    if weight is not None and weight.numel() != 1:
        raise ShapeError(
            f"weight: got shape {tuple(weight.shape)}; expected one number, (). A factor per "
            "feature is rms_norm's"
        )
    x = input.to(accumulation_dtype(input.dtype))
    # bounded before the root, whose slope at 0 is infinite
    rlength = x.square().sum(-1, keepdim=True).clamp(min=eps**2).rsqrt()
    g = None if weight is None else weight.reshape(())
    return affine(x * rlength, g).to(input.dtype)


class ScaleNorm(nn.Module):
    """:func:`scale_norm` of vectors of size `dim` as a module; its weight starts at sqrt(dim)."""

    def __init__(
        self,
        dim: int,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps
        self.weight = nn.Parameter(torch.empty((), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to the root of `dim`."""
        nn.init.constant_(self.weight, math.sqrt(self.dim))

    def forward(self, input: Tensor) -> Tensor:
        """Normalize `input`."""
        if input.shape[-1:] != (self.dim,):
            raise ShapeError(f"input: got shape {tuple(input.shape)}; expected (*, {self.dim})")
        return scale_norm(input, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}"
