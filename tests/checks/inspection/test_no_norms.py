"""doctor: what acts as a norm on one of its inputs, and is none."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab import doctor

TOKENS = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


class Attend(nn.Module):
    """Queries, keys and values come in: without matrices of its own."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)


class LargestBeside(nn.Module):
    """A norm that has no name, with a residual of the input's shape beside it."""

    def forward(self, x: Tensor, residual: Tensor, scale: Tensor) -> Tensor:
        total = x + residual
        return scale * total / total.abs().amax(-1, keepdim=True)


class Around(nn.Module):
    def __init__(self, layer: nn.Module, size: float):
        super().__init__()
        self.projection, self.layer = nn.Linear(8, 24), layer
        with torch.no_grad():
            self.projection.weight.mul_(size)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(*self.projection(x).chunk(3, -1))


class Growing(nn.Module):
    """A cache that grows in each call, so that no two calls are alike."""

    def __init__(self):
        super().__init__()
        self.kept: list[Tensor] = []
        self.weight = nn.Parameter(torch.randn(8, 8))  # a matrix that is no linear layer

    def forward(self, x: Tensor) -> Tensor:
        self.kept.append(x)
        return (torch.stack(self.kept).mean(0) @ self.weight).tanh()


@pytest.mark.parametrize("size", [0.02, 1.0, 20.0])
def test_attention_is_no_norm_of_its_queries(size):
    examined = doctor(Around(Attend(), size), TOKENS)
    assert (examined.norms, examined.unknown) == ([], [])


@pytest.mark.parametrize("size", [0.02, 1.0])
def test_a_norm_with_other_arguments_is_listed(size):
    assert doctor(Around(LargestBeside(), size), TOKENS).unknown == ["layer"]


def test_what_is_random_is_no_norm():
    examined = doctor(nn.Sequential(nn.Linear(8, 8), Growing()), TOKENS)
    assert (examined.norms, examined.unknown) == ([], [])
