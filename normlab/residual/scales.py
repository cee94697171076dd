"""Branches scaled by learned factors, with or instead of norms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from normlab.layers import AdaLN, ShapeError
from normlab.residual.sums import branch


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

    SkipInit is the same map, proposed for convolutional branches without batch norm. With a = 0 the
    first step reaches a alone; the gradients in the branch are 0.

    Source:
        bachlechner2021rezero; de2020batch for SkipInit.
    """

    def __init__(self, sublayer: nn.Module, init: float = 0.0) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.alpha = nn.Parameter(torch.tensor(init))

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        return x + self.alpha * branch(self.sublayer, x, *args, **kwargs)


SkipInit = ReZero


class Fixup(nn.Module):
    r"""A branch of two matrices with scalar biases, a scalar factor and no norm.

    .. math:: y = x + a \, G(\phi(F(x + b_1) + b_2) + b_3) + b_4

    F and G are linear or convolutional layers without bias, which :func:`fixup_init_` sets; the
    activation is a rectifier.

    Source:
        zhang2019fixup.
    """

    def __init__(self, first: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.last = last
        self.biases = nn.Parameter(torch.zeros(4))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        inner = functional.relu(self.first(x + self.biases[0]) + self.biases[1])
        y = branch(self.last, inner + self.biases[2], like=x)
        return x + self.scale * y + self.biases[3]


@torch.no_grad()
def fixup_init_(blocks: Iterable[Fixup]) -> None:
    r"""Start the blocks of a network: the last matrix at 0, the first one small.

    .. math:: W_1 \sim L^{-1/(2m - 2)} \cdot \mathrm{He}, \qquad W_2 = 0, \qquad m = 2

    Args:
        blocks: all L blocks of the network; changed in place.

    Raises:
        ValueError: there is no block, or a block's matrix is not called `weight`.

    Source:
        zhang2019fixup; he2015delving for the rule of the first matrix.
    """
    blocks = list(blocks)
    if not blocks:
        raise ValueError("blocks: got none; expected the blocks of a network")
    for block in blocks:
        first, last = (getattr(layer, "weight", None) for layer in (block.first, block.last))
        if not isinstance(first, Tensor) or not isinstance(last, Tensor):
            raise ValueError("blocks: expected linear or convolutional layers with a `weight`")
        nn.init.kaiming_normal_(first)
        first.mul_(len(blocks) ** -0.5)
        last.zero_()


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
