"""Tolerances that are derived from the dtype and from torch's own error, not chosen."""

from __future__ import annotations

import torch
from torch import Tensor

HALF = torch.bfloat16, torch.float16
GROSS = 1e-3  # relative: what counts where the values themselves were checked elsewhere


def ulp(values: Tensor, dtype: torch.dtype) -> float:
    """Spacing of the numbers of `dtype` at the largest magnitude in `values`.

    Args:
        values: any real tensor; may be empty.
        dtype: the floating dtype whose spacing is asked for.

    Units:
        those of `values`.

    Example:
        >>> ulp(torch.tensor([1.0, -3.0]), torch.float32) == 2 * torch.finfo(torch.float32).eps
        True
    """
    largest = (
        values.detach().abs().max().to(dtype) if values.numel() else torch.zeros((), dtype=dtype)
    )
    above = torch.nextafter(largest, torch.full_like(largest, torch.inf))
    return float(above.double() - largest.double())


def max_error(got: Tensor, expected: Tensor) -> float:
    """Largest absolute difference in float64; infinite where one is NaN and the other is not.

    Args:
        got: computed values.
        expected: of the same shape.
    """
    if got.numel() == 0:
        return 0.0
    a, b = got.detach().double(), expected.detach().double()
    equal = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(equal, torch.zeros_like(a), (a - b).abs())
    return float(difference.nan_to_num(nan=torch.inf).max())


def close(got: Tensor, expected: Tensor, relative: float = 1e-4) -> bool:
    """Whether two results differ by rounding in float32 alone."""
    return max_error(got, expected) <= relative * float(expected.abs().max())


def error_budget(
    expected: Tensor, dtype: torch.dtype, torch_error: float, *, factor: float = 2.0, ulps: int = 4
) -> float:
    r"""Largest error that a computation in `dtype` may make.

    .. math:: \max(\text{factor} \cdot e_{\text{torch}}, \;
              \text{ulps} \cdot \operatorname{ulp}(\max|y|))

    The first term lets a layer be `factor` times as wrong as torch's own, measured on the same
    inputs; the second keeps a lucky exact result of torch from forbidding ordinary rounding.

    Args:
        expected: float64 values.
        dtype: dtype of the computation.
        torch_error: largest error of torch's layer in `dtype` on the same inputs.
        factor: of torch's error.
        ulps: of the largest expected magnitude.

    Units:
        those of `expected`.
    """
    return max(factor * torch_error, ulps * ulp(expected, dtype))
