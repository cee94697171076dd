"""Norms whose scale and shift come from elsewhere: a style image, a time step, a class."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from normlab.layers.layer import layer_norm
from normlab.layers.standardization import accumulation_dtype, standardize
from normlab.layers.validation import ShapeError, check_positions


def adaptive_instance_norm(content: Tensor, style: Tensor, eps: float = 1e-5) -> Tensor:
    r"""Give each channel of the content the mean and spread that it has in the style.

    .. math:: y = \sigma(s) \, \frac{c - \mu(c)}{\sigma(c)} + \mu(s)

    Args:
        content: (N, C, \*) with positions, floating.
        style: (N, C, \*); its positions may be others than those of the content.
        eps: in units of x².

    Returns:
        the shape and dtype of `content`, in the units of the style.

    Raises:
        ShapeError: no positions, or other samples or channels in the style.
        DtypeError: integer input.

    Conventions:
        both variances with divisor n and `eps` inside the root; nothing is learned. 16-bit input
        is computed in float32 and rounded once.

    Source:
        huang2017arbitrary, Eq. 8.

    Example:
        >>> content, style = torch.tensor([[[0.0, 2.0]]]), torch.tensor([[[10.0, 14.0, 12.0]]])
        >>> adaptive_instance_norm(content, style, eps=0.0).round(decimals=3)
        tensor([[[10.3670, 13.6330]]])
    """
    positions, style_positions = check_positions(content), check_positions(style)
    if content.shape[:2] != style.shape[:2]:
        raise ShapeError(
            f"style: got shape {tuple(style.shape)} for a content of {tuple(content.shape)}; "
            "expected the same samples and channels, (N, C)"
        )
    x = content.to(accumulation_dtype(content.dtype))
    s = style.to(x.dtype)
    x_hat, _, _ = standardize(x, positions, eps)
    _, mean, var = standardize(s, style_positions, eps)
    per_sample = content.shape[:2] + (1,) * len(positions)
    y = x_hat * (var + eps).sqrt().view(per_sample) + mean.view(per_sample)
    return y.to(content.dtype)


class AdaLN(nn.Module):
    r"""Layer norm whose scale and shift are computed from a condition.

    .. math:: y = (1 + s) \odot \mathrm{LN}(x) + b, \qquad
              (b, s) = W \, \mathrm{SiLU}(c) + w_0

    The linear map starts at zero, so the layer starts as a layer norm without parameters. The
    gate of adaLN-zero belongs to the residual block: :class:`normlab.residual.AdaLNZero`.

    Called with an input (N, \*, dim) and a condition (N, condition_dim), it returns the shape of
    the input.

    Raises:
        ShapeError: an input or condition that does not fit.

    Source:
        peebles2023scalable, Section 3.2.
    """

    def __init__(
        self,
        dim: int,
        condition_dim: int,
        eps: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.condition_dim = condition_dim
        self.eps = eps
        self.modulation = nn.Linear(condition_dim, 2 * dim, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the linear map to 0: no condition changes anything yet."""
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, input: Tensor, condition: Tensor) -> Tensor:
        """Normalize `input` and modulate it by `condition`."""
        if input.dim() < 2 or input.shape[-1] != self.dim:
            raise ShapeError(f"input: got shape {tuple(input.shape)}; expected (N, *, {self.dim})")
        if condition.shape != (input.shape[0], self.condition_dim):
            raise ShapeError(
                f"condition: got shape {tuple(condition.shape)}; expected "
                f"({input.shape[0]}, {self.condition_dim}), one row for each sample"
            )
        modulation = self.modulation(functional.silu(condition))
        per_sample = (input.shape[0],) + (1,) * (input.dim() - 2) + (-1,)
        shift, scale = modulation.view(per_sample).chunk(2, dim=-1)
        return layer_norm(input, (self.dim,), None, None, self.eps) * (1 + scale) + shift

    def extra_repr(self) -> str:
        return f"{self.dim}, {self.condition_dim}, eps={self.eps}"
