"""doctor: what is wrong in 16 bits, in a model that runs in them and under autocast."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from normlab import doctor

G = torch.Generator().manual_seed(0)
ROWS = torch.randn(2, 5, 16, generator=G)


class UpcastRMSNorm(nn.Module):
    """An RMS norm in float32 that casts back, or forgets to."""

    def __init__(self, *, back: bool, size: int = 16):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps, self.back = 1e-5, back

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight.float()
        return y.to(x.dtype) if self.back else y


class Mixed(nn.Module):
    """A norm between two linear layers; the second gets the dtype that it needs."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 16), norm, nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).to(self.last.weight.dtype))


class GroupNorm(nn.Module):
    """A group norm by hand; its statistics are in the dtype of its input, or in float32."""

    def __init__(self, channels: int, *, last: bool, up: bool = False):
        super().__init__()
        self.num_groups, self.eps, self.last, self.up = 4, 1e-5, last, up
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.last else x.movedim(1, -1)
        shape = y.shape
        y = (y.float() if self.up else y).reshape(len(y), -1, self.num_groups, shape[-1] // 4)
        mean, var = y.mean((1, 3), keepdim=True), y.var((1, 3), keepdim=True, correction=0)
        y = ((y - mean) * (var + self.eps).rsqrt()).reshape(shape).to(x.dtype)
        y = y * self.weight + self.bias
        return y if self.last else y.movedim(-1, 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_norm_that_returns_another_dtype_than_the_model_runs_in(dtype):
    torch.manual_seed(0)
    wrong, right = (Mixed(UpcastRMSNorm(back=back)) for back in (False, True))
    examined = doctor(wrong.to(dtype), ROWS.to(dtype))
    (found,) = examined.findings
    assert (found.rule, found.modules) == ("does_not_conform", ("norm",)), str(examined)
    name = str(dtype).removeprefix("torch.")
    assert f"{name}, unit input" in found.message and "y.to(x.dtype)" in found.message
    assert not doctor(right.to(dtype), ROWS.to(dtype)).findings
    assert not doctor(wrong.float(), ROWS).findings  # other dtypes are no matter of this model
    torchs = Mixed(nn.RMSNorm(16, eps=1e-5)).to(dtype)
    assert not doctor(torchs, ROWS.to(dtype)).findings


@pytest.mark.parametrize("last", [False, True])
def test_half_statistics_whatever_the_order_of_axes(last):
    torch.manual_seed(0)
    linear = nn.Linear(6, 8) if last else nn.Conv1d(6, 8, 1)
    example = torch.randn(4, 5, 6) if last else torch.randn(4, 6, 5)
    wrong, right = (nn.Sequential(linear, GroupNorm(8, last=last, up=up)) for up in (False, True))
    examined = doctor(wrong, example)
    found = [f for f in examined.findings if f.rule == "half_statistics"]
    assert [f.modules for f in found] == [("1",)] and "under autocast" in found[0].message
    assert not doctor(right, example).findings, str(doctor(right, example))
