"""DyT and Derf: squashing functions in a norm's place. They take no statistics."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normlab.layers.standardization import accumulation_dtype
from normlab.layers.validation import (
    ShapeError,
    as_normalized_shape,
    check_floating,
    check_normalized_shape,
)


def dyt(
    input: Tensor, alpha: Tensor, weight: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    r"""Squash every value by a hyperbolic tangent of learned slope.

    .. math:: y = \tanh(\alpha x) \odot w + b

    Args:
        input: a floating tensor.
        alpha: one number.
        weight: factor per feature, or None for 1.
        bias: summand per feature, or None for 0.

    Shape:
        input (\*, weight.shape); alpha () or (1,); bias as weight; returns the shape of `input`.

    Raises:
        ShapeError: `alpha` is not one number, or weight or bias is not the end of the shape.
        DtypeError: integer input.

    Units:
        `alpha` has the units of 1/x; the output has those of the weight.

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
    return _affine(torch.tanh(slope["alpha"] * x), weight, bias).to(input.dtype)


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

    Args:
        input: a floating tensor.
        alpha: one number.
        shift: one number, s.
        weight: factor per feature, or None for 1.
        bias: summand per feature, or None for 0.

    Shape:
        input (\*, weight.shape); alpha and shift () or (1,); bias as weight; returns the shape
        of `input`.

    Raises:
        ShapeError: `alpha` or `shift` is not one number, or weight or bias is not the end of
            the shape.
        DtypeError: integer input.

    Units:
        `alpha` has the units of 1/x; `shift` is a pure number.

    Conventions:
        as :func:`dyt`.

    Source:
        chen2025stronger, Eq. 10.

    Example:
        >>> derf(torch.tensor([[-9.0, 0.0, 9.0]]), torch.tensor(0.5), torch.tensor(0.0))
        tensor([[-1.,  0.,  1.]])
    """
    x, scalars = _prepare(input, weight, bias, alpha=alpha, shift=shift)
    return _affine(torch.erf(scalars["alpha"] * x + scalars["shift"]), weight, bias).to(input.dtype)


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


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


class DyT(nn.Module):
    r"""Module around :func:`dyt`, dynamic tanh.

    Args:
        normalized_shape: the last sizes of the input; an int stands for one axis.
        alpha: slope at the start; units 1/x.
        device: of the parameters.
        dtype: of the parameters.

    Shape:
        input (\*, normalized_shape); returns the same shape.

    Source:
        zhu2025transformers.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        alpha: float = 0.5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = as_normalized_shape(normalized_shape)
        self.initial_alpha = alpha
        self.alpha = nn.Parameter(torch.empty(1, device=device, dtype=dtype))
        self.weight = nn.Parameter(torch.empty(self.normalized_shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty_like(self.weight))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set alpha to its start, the weight to 1 and the bias to 0."""
        nn.init.constant_(self.alpha, self.initial_alpha)
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Squash `input`; see :func:`dyt`."""
        return dyt(input, self.alpha, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, alpha={self.initial_alpha}"


class Derf(nn.Module):
    r"""Module around :func:`derf`, dynamic erf.

    Args:
        normalized_shape: the last sizes of the input; an int stands for one axis.
        alpha: slope at the start; units 1/x. The shift starts at 0.
        device: of the parameters.
        dtype: of the parameters.

    Shape:
        input (\*, normalized_shape); returns the same shape.

    Source:
        chen2025stronger, Eq. 10.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        alpha: float = 0.5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = as_normalized_shape(normalized_shape)
        self.initial_alpha = alpha
        self.alpha = nn.Parameter(torch.empty(1, device=device, dtype=dtype))
        self.shift = nn.Parameter(torch.empty_like(self.alpha))
        self.weight = nn.Parameter(torch.empty(self.normalized_shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty_like(self.weight))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set alpha to its start, the weight to 1, shift and bias to 0."""
        nn.init.constant_(self.alpha, self.initial_alpha)
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.shift)
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Squash `input`; see :func:`derf`."""
        return derf(input, self.alpha, self.shift, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, alpha={self.initial_alpha}"
