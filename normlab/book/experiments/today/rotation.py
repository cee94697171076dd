"""Rotary embeddings: pairs of features are turned by an angle that grows with the position."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, base: float = 10_000.0) -> Tensor:
    r"""Turn the pairs (0, 1), (2, 3), ... of the features of each token.

    .. math:: \theta_{t, i} = t \, b^{-2i/d}

    Args:
        base: b; the last pair turns slowest.

    Shape:
        x (\*, T, d) with even d; returns the same shape.

    Example:
        >>> rotate(torch.tensor([[1.0, 0.0], [1.0, 0.0]])).round(decimals=2)
        tensor([[1.0000, 0.0000],
                [0.5400, 0.8400]])
    """
    if x.shape[-1] % 2:
        raise ValueError(f"x: got {x.shape[-1]} features; expected an even number, for pairs")
    size = x.shape[-1]
    rates = base ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
    angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * rates
    turn = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(turn * pairs).flatten(-2)
