"""Layer norm and RMS norm of tokens whose features lie on several processes."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.layers.standardization import accumulation_dtype
from normlab.layers.validation import check_dtypes, check_normalized_shape
from normlab.parallel.collectives import Group, sum_over_group
from normlab.parallel.moments import group_moments, normalize


def rms_norm(
    input: Tensor, weight: Tensor | None = None, eps: float | None = None, group: Group = None
) -> Tensor:
    r"""Divide each token by the root mean square of its features on all processes.

    .. math:: y = \frac{x}{\sqrt{\frac1H \sum_r \sum_{i \in r} x_i^2 + \epsilon}} \odot w

    Args:
        input: the features of this process, for each token.
        weight: factor for each of these features, or None for 1.
        eps: keeps the root away from zero; None takes the machine epsilon of the dtype that the
            sum is computed in (float32's for 16-bit input).
        group: the processes that share the features; None for all.

    Shape:
        input (\*, h), where h may differ between processes and may be 0, and H is the sum of all
        h; weight (h,); returns the shape of `input`.

    Raises:
        ShapeError: `weight` is not (h,).
        DtypeError: integer input, or a weight of an unfit dtype.
        ValueError: this process is not a member of `group`.

    Units:
        `eps` has the units of x².

    Conventions:
        `eps` inside the root; 16-bit input is computed in float32. Forward and backward are one
        all-reduce of one number a token each; the gradient of the weight is complete.

    Source:
        zhang2019root, Eq. 4.

    Example:
        >>> rms_norm(torch.tensor([[3.0, 4.0]]), eps=0.0)  # one process is a group of its own
        tensor([[0.8485, 1.1314]])
    """
    check_normalized_shape(input, input.shape[-1:], weight=weight)
    check_dtypes(input, weight=weight)
    x = input.to(accumulation_dtype(input.dtype))
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    squares = x.square().sum(-1)
    # the number of features travels with the sums
    mine = torch.cat([squares.flatten(), squares.new_full((1,), x.shape[-1])])
    total = sum_over_group(mine, group)
    mean_square = total[:-1].view(squares.shape) / total[-1].detach().clamp(min=1)
    y = x * torch.rsqrt(mean_square + eps).unsqueeze(-1)
    if weight is not None:
        y = y * weight
    return y.to(input.dtype)


def layer_norm(
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    group: Group = None,
) -> Tensor:
    r"""Standardize each token over its features on all processes.

    Args:
        input: the features of this process, for each token.
        weight: factor for each of these features, or None for 1.
        bias: summand for each of these features, or None for 0.
        eps: keeps the root away from zero.
        group: the processes that share the features; None for all.

    Shape, errors and units are those of :func:`rms_norm`.

    Conventions:
        divisor H, the features of all processes; `eps` inside the root; 16-bit input is computed
        in float32. Forward is one all-gather of two numbers a token, backward one all-reduce of
        two; the gradients of weight and bias are complete.

    Source:
        ba2016layer, Eq. 3 and 4; chan1983algorithms, Eq. 2.1.

    Example:
        >>> layer_norm(torch.tensor([[1.0, 2.0, 3.0]]), eps=0.0)
        tensor([[-1.2247,  0.0000,  1.2247]])
    """
    check_normalized_shape(input, input.shape[-1:], weight=weight, bias=bias)
    check_dtypes(input, weight=weight, bias=bias)
    x = input.to(accumulation_dtype(input.dtype))
    return normalize(x, group_moments(x, (-1,), group), eps, weight, bias).to(input.dtype)
