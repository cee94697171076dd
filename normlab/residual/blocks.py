"""Where the norm stands in a residual block: after the sum, before the branch, or DeepNorm."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """A branch and one norm; each block says where the norm stands."""

    def __init__(self, sublayer: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.norm = norm


def branch(
    sublayer: nn.Module, x: Tensor, *args: Any, like: Tensor | None = None, **kwargs: Any
) -> Tensor:
    """The sublayer's output, once it can be added to the skip: to x, or to `like`."""
    y = sublayer(x, *args, **kwargs)
    skip = x if like is None else like
    if not isinstance(y, Tensor):
        raise TypeError(
            f"sublayer: returned {type(y).__name__}; expected a tensor. Wrap a module that "
            "returns more, such as nn.MultiheadAttention, in one that returns its first output"
        )
    if y.shape != skip.shape:
        raise ValueError(
            f"sublayer: returned shape {tuple(y.shape)} for an input of shape {tuple(skip.shape)}; "
            "expected the same shape, or there is no residual sum"
        )
    return y


class PostNorm(Block):
    r"""The norm comes after the residual sum.

    .. math:: y = \mathrm{norm}(x + F(x))

    Source:
        vaswani2017attention, Section 3.1; xiong2020layer, Table 1.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        return self.norm(x + branch(self.sublayer, x, *args, **kwargs))


class PreNorm(Block):
    r"""The norm comes before the branch; the skip is left alone.

    .. math:: y = x + F(\mathrm{norm}(x))

    A stack of such blocks ends with one more norm.

    Source:
        xiong2020layer, Table 1.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        return x + branch(self.sublayer, self.norm(x), *args, **kwargs)


class DeepNorm(Block):
    r"""Post-norm with a skip that is scaled up, by alpha from :func:`deep_norm_constants`.

    .. math:: y = \mathrm{norm}(\alpha\, x + F(x))

    Only the skip is scaled. A factor on the whole sum would do nothing: the norm divides it
    out. The other half of the method is :func:`deep_norm_init_`.

    Raises:
        ValueError: `alpha` is not a positive number.

    Source:
        wang2022deepnet, Section 4.1.
    """

    def __init__(self, sublayer: nn.Module, norm: nn.Module, *, alpha: float) -> None:
        super().__init__(sublayer, norm)
        if not (math.isfinite(alpha) and alpha > 0):
            raise ValueError(
                f"alpha: got {alpha}; expected a positive number. "
                "deep_norm_constants(encoder_layers=...) gives it"
            )
        self.alpha = alpha

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        return self.norm(torch.add(branch(self.sublayer, x, *args, **kwargs), x, alpha=self.alpha))

    def extra_repr(self) -> str:
        return f"alpha={self.alpha:.4g}"
