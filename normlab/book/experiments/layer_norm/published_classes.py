"""Two LayerNorm modules as they are often written out, to be read beside torch's."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AnnotatedLayerNorm(nn.Module):
    """A gain `a_2`, a bias `b_2`, and torch's default standard deviation, with divisor D - 1.

    Source:
        rush2018annotated.
    """

    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Standardize the last axis."""
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class EpsOutsideLayerNorm(nn.Module):
    """The divisor is D, but eps is added to the standard deviation, outside the root."""

    def __init__(self, num_features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(num_features))
        self.beta = nn.Parameter(torch.zeros(num_features))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Standardize the last axis."""
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True, correction=0)
        return self.gamma * (x - mean) / (std + self.eps) + self.beta
