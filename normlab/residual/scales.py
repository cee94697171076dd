"""Branches scaled by learned factors, with or instead of norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from normlab.layers import AdaLN, ShapeError
from normlab.residual.blocks import branch


class LayerScale(nn.Module):
    r"""A learned factor for each feature of (\*, D), which starts at `init`.

    .. math:: y = \lambda \odot x

    It stands behind a branch: `PreNorm(nn.Sequential(F, LayerScale(dim)), norm)`.

    Source:
        touvron2021going.
    """

    def __init__(
        self,
        dim: int,
        init: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.init = init
        self.weight = nn.Parameter(torch.full((dim,), init, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        """Rescale `input`."""
        if input.shape[-1:] != self.weight.shape:
            raise ShapeError(
                f"input: got shape {tuple(input.shape)}; expected (*, {self.weight.numel()})"
            )
        return input * self.weight

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, init={self.init}"


class ReZero(nn.Module):
    r"""The branch times one learned number that starts at 0; no norm.

    .. math:: y = x + a \, F(x), \qquad a = 0 \text{ at the start}

    With a = 0 the first step reaches a alone; the gradients in the branch are 0.

    Source:
        bachlechner2021rezero; de2020batch, for convolutional branches (SkipInit).
    """

    def __init__(self, sublayer: nn.Module, init: float = 0.0) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.alpha = nn.Parameter(torch.tensor(init))

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        return x + self.alpha * branch(self.sublayer, x, *args, **kwargs)


class AdaLNZero(nn.Module):
    r"""A residual block whose norm and gate are computed from a condition; adaLN-zero.

    .. math:: y = x + g \odot F(\mathrm{AdaLN}(x, c)), \qquad
              g = W_g \, \mathrm{SiLU}(c) + w_g = 0 \text{ at the start}

    Called with x (N, \*, dim) and a condition (N, condition_dim); `eps`, in units of x², is that of
    :class:`normlab.layers.AdaLN`.

    Raises:
        ShapeError: an input or condition that does not fit.

    Source:
        peebles2023scalable, Section 3.2.
    """

    def __init__(
        self, sublayer: nn.Module, dim: int, condition_dim: int, eps: float = 1e-6
    ) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.norm = AdaLN(dim, condition_dim, eps)
        self.gate = nn.Linear(condition_dim, dim)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, x: Tensor, condition: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        y = branch(self.sublayer, self.norm(x, condition), *args, **kwargs)
        gate = self.gate(functional.silu(condition))
        return x + gate.view(x.shape[0], *(1,) * (x.dim() - 2), -1) * y
