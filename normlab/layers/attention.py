"""QK-norm: queries and keys are normalized before their products are taken."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normlab.layers.rms import RMSNorm
from normlab.layers.validation import ShapeError


class QKNorm(nn.Module):
    r"""RMS norm of queries and keys, per head or over all heads.

    .. math::

       & \hat q = \mathrm{RMSNorm}(q), \quad \hat k = \mathrm{RMSNorm}(k) \\
       & \frac{|\hat q \cdot \hat k|}{\sqrt d} \le \sqrt d \text{ while the weights are } 1

    Args:
        head_dim: size d of a head.
        heads: None for statistics of each head alone, with one weight of (head_dim,) for all
            heads. A number for statistics over all heads of a token, with a weight of
            (heads * head_dim,).
        eps: in units of x²; None for the machine epsilon.
        elementwise_affine: learn the weights. Without them the norm commutes with a rotation of
            positions; with them it stands before the rotation, or the result is another.

    Called with query and key (\*, heads, T, head_dim), as for scaled dot-product attention, it
    returns both with their shapes. Their numbers of heads differ in grouped-query attention, which
    takes `heads=None`.

    Raises:
        ShapeError: a last axis other than `head_dim`, or another number of heads.

    Source:
        henry2020query (an L2 norm and one learned factor there).
    """

    def __init__(
        self,
        head_dim: int,
        heads: int | None = None,
        eps: float | None = 1e-6,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.heads = heads
        size = head_dim * (heads or 1)
        self.query = RMSNorm(size, eps, elementwise_affine, device, dtype)
        self.key = RMSNorm(size, eps, elementwise_affine, device, dtype)

    def forward(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Normalize `query` and `key`."""
        return (self._normalize("query", query, self.query), self._normalize("key", key, self.key))

    def _normalize(self, name: str, x: Tensor, norm: RMSNorm) -> Tensor:
        heads = "*" if self.heads is None else self.heads
        fits = x.dim() >= 2 and x.shape[-1] == self.head_dim
        if self.heads is None and fits:
            y: Tensor = norm(x)
            return y
        if not fits or x.dim() < 3 or x.shape[-3] != self.heads:
            raise ShapeError(
                f"{name}: got shape {tuple(x.shape)}; expected (*, {heads}, T, {self.head_dim})"
            )
        tokens = x.transpose(-3, -2)  # (*, T, heads, head_dim)
        y = norm(tokens.flatten(-2)).unflatten(-1, (self.heads, self.head_dim))
        return y.transpose(-3, -2)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, heads={self.heads}"
