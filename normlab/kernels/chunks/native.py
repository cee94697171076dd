"""What layer norm and group norm share: rows by torch's own kernel, with digits to spare."""

from __future__ import annotations

import torch
from torch import Tensor


def normalize_rows(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, wide: torch.dtype
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Normalize the rows of x, (rows, features), in the dtype of x, which weight and bias have.

    Columns of the mean, of what its rounding missed and of rstd come with it; `wide` is the dtype
    of the statistics.
    """
    if x.dtype == torch.float64:
        y, mean, rstd = torch.native_layer_norm(x, x.shape[1:], weight, bias, eps)
        first = mean.to(wide)
        return y, (first, mean - first, rstd)
    first = x.mean(1, keepdim=True)
    # in float32 the row kernel loses digits to a large mean; on centered rows it has none to lose,
    # and its own mean is what ours missed
    y, missed, rstd = torch.native_layer_norm(x - first, x.shape[1:], weight, bias, eps)
    return y, (first, missed, rstd)


def differentiate_rows(h: Tensor, x_hat: Tensor) -> Tensor:
    """Give h - mean(h) - x_hat * mean(h * x_hat) of each row: the gradient of x over rstd.

    With a mean of 0 and an rstd of 1 torch's kernel rounds once less than with those of x.
    """
    zeros = x_hat.new_zeros((len(x_hat), 1))
    mask = [True, False, False]
    backward = torch.ops.aten.native_layer_norm_backward
    found: Tensor = backward(
        h.contiguous(), x_hat, x_hat.shape[1:], zeros, zeros + 1, None, None, mask
    )[0]
    return found
