"""Where the norm stands in a residual block: after the sum, before the branch, or DeepNorm."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from normlab.residual.sums import Block
from normlab.residual.sums import branch as _branch


class PostNorm(Block):
    r"""The norm comes after the residual sum.

    .. math:: y = \mathrm{norm}(x + F(x))

    Source:
        vaswani2017attention, Section 3.1; xiong2020layer, Table 1.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        return self.norm(x + _branch(self.sublayer, x, *args, **kwargs))


class PreNorm(Block):
    r"""The norm comes before the branch; the skip is left alone.

    .. math:: y = x + F(\mathrm{norm}(x))

    A stack of such blocks ends with one more norm.

    Source:
        xiong2020layer, Table 1.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Apply the block."""
        return x + _branch(self.sublayer, self.norm(x), *args, **kwargs)


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
        return self.norm(torch.add(_branch(self.sublayer, x, *args, **kwargs), x, alpha=self.alpha))

    def extra_repr(self) -> str:
        return f"alpha={self.alpha:.4g}"
