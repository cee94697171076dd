"""DyT and Derf: squashing functions in a norm's place. They take no statistics."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype, affine
from normlab.layers.validation import (
    ShapeError,
    as_shape,
    check_floating,
    check_normalized_shape,
)


def dyt(
    input: Tensor, alpha: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    r"""Squash every value by a hyperbolic tangent of learned slope.

    .. math:: y = \tanh(\alpha x) \odot w + b

    Args:
        input: (\*, weight.shape), floating; the output has its shape and dtype.
        alpha: one number, () or (1,), in units of 1/x.
        weight: factor per feature, or None for 1.
        bias: summand per feature, or None for 0.

    Raises:
        ShapeError: `alpha` is not one number, or weight or bias is not the end of the shape.
        DtypeError: integer input.

    Conventions:
        no statistics: each output depends on one input, so a rescaled input changes the output.
        16-bit input is computed in float32 and rounded once.

    Source:
        zhu2025transformers.

    Example:
        >>> dyt(torch.tensor([[-99.0, 0.0, 99.0]]), torch.tensor(0.5))
        tensor([[-1.,  0.,  1.]])
    """
    x, slope = _prepare(input, weight, bias, alpha=alpha)
    return affine(torch.tanh(slope["alpha"] * x), weight, bias).to(input.dtype)


def derf(
    input: Tensor,
    alpha: Tensor,
    shift: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    r"""Squash every value by an error function of learned slope and shift.

    .. math:: y = \operatorname{erf}(\alpha x + s) \odot w + b, \qquad
              \operatorname{erf}(z) = \frac{2}{\sqrt\pi} \int_0^z e^{-t^2} dt

    Arguments, errors and conventions are those of :func:`dyt`, with one more.

    Args:
        shift: one number, s, without units.

    Source:
        chen2025stronger, Eq. 10.

    Example:
        >>> derf(torch.tensor([[-9.0, 0.0, 9.0]]), torch.tensor(0.5), torch.tensor(0.0))
        tensor([[-1.,  0.,  1.]])
    """
    x, scalars = _prepare(input, weight, bias, alpha=alpha, shift=shift)
    return affine(torch.erf(scalars["alpha"] * x + scalars["shift"]), weight, bias).to(input.dtype)


def _prepare(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, **scalars: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    check_floating(input)
    given = next((p for p in (weight, bias) if p is not None), None)
    if given is not None:
        check_normalized_shape(input, given.shape, weight=weight, bias=bias)
    for name, value in scalars.items():
        if value.numel() != 1:
            raise ShapeError(f"{name}: got shape {tuple(value.shape)}; expected one number, ()")
    dtype = accumulation_dtype(input.dtype)
    return input.to(dtype), {name: v.reshape(()).to(dtype) for name, v in scalars.items()}


class DyT(nn.Module):
    """:func:`dyt`, dynamic tanh, as a module; `alpha` is the slope at the start."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        alpha: float = 0.5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = as_shape(normalized_shape)
        self.initial_alpha = alpha
        empty = torch.empty(self.normalized_shape, device=device, dtype=dtype)
        self.alpha = nn.Parameter(empty.new_empty(1))
        self.weight = nn.Parameter(empty)
        self.bias = nn.Parameter(empty.clone())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set alpha to its start, the weight to 1, and the bias to 0."""
        nn.init.constant_(self.alpha, self.initial_alpha)
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Squash `input`."""
        return dyt(input, self.alpha, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, alpha={self.initial_alpha}"


class Derf(nn.Module):
    """:func:`derf`, dynamic erf, as a module; `alpha` is the slope at the start, the shift is 0."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        alpha: float = 0.5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = as_shape(normalized_shape)
        self.initial_alpha = alpha
        empty = torch.empty(self.normalized_shape, device=device, dtype=dtype)
        self.alpha = nn.Parameter(empty.new_empty(1))
        self.shift = nn.Parameter(empty.new_empty(1))
        self.weight = nn.Parameter(empty)
        self.bias = nn.Parameter(empty.clone())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set alpha to its start, the weight to 1, and the bias and shift to 0."""
        nn.init.constant_(self.alpha, self.initial_alpha)
        nn.init.zeros_(self.shift)
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Squash `input`."""
        return derf(input, self.alpha, self.shift, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, alpha={self.initial_alpha}"
