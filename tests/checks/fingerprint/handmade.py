"""Norms written by hand, one for each combination of conventions, and layers that are no norm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Spelling:
    """A norm and its conventions, under the names of the report."""

    family: str
    placement: str = "inside"
    divisor: str = "n"
    offset: int = 0
    cast: str | None = "before"  # None: half-precision inputs are never cast up
    eps: float = 1e-5
    bias: bool = True

    def __str__(self) -> str:
        end = f"offset{self.offset}-{self.cast}"
        return f"{self.family}-{self.placement}-{self.divisor}-{end}"


class Handmade(nn.Module):
    """The norm that a :class:`Spelling` describes; its names give nothing away."""

    def __init__(self, spelling: Spelling, size: int, groups: int = 1):
        super().__init__()
        self.how, self.groups = spelling, groups
        self.p = nn.Parameter(torch.full((size,), 1.0 - spelling.offset))
        self.q = nn.Parameter(torch.zeros(size)) if spelling.bias else None

    def forward(self, x: Tensor) -> Tensor:
        how = self.how
        h = x if how.cast is None else x.to(torch.promote_types(x.dtype, torch.float32))
        view = h
        last = how.family in ("layer_norm", "rms_norm")
        if how.family == "group_norm":
            view = h.unflatten(1, (self.groups, -1))
        dims = {
            "layer_norm": (-1,),
            "rms_norm": (-1,),
            "batch_norm": (0, *range(2, x.dim())),
            "instance_norm": tuple(range(2, x.dim())),
            "group_norm": tuple(range(2, view.dim())),
        }[how.family]
        if how.family != "rms_norm":
            view = view - view.mean(dims, keepdim=True)
        var = view.square().mean(dims, keepdim=True)
        if how.divisor == "n-1":
            n = math.prod(view.shape[d] for d in dims)
            var = var * (n / (n - 1))
        if how.placement == "inside":
            view = view / (var + how.eps).sqrt()
        elif how.placement == "outside":
            view = view / (var.sqrt() + how.eps)
        else:
            view = view / var.clamp_min(how.eps).sqrt()
        h = view.reshape(x.shape)
        if how.cast == "after":
            h = h.to(x.dtype)
        shape = (-1,) if last else (-1, *(1,) * (x.dim() - 2))
        h = h * (self.p + how.offset).view(shape)
        h = h if self.q is None else h + self.q.view(shape)
        return h.to(x.dtype)


def _spellings() -> list[Spelling]:
    found = []
    for placement in ("inside", "outside", "clamp"):
        eps = {"inside": 1e-5, "outside": 1e-6, "clamp": 3e-7}[placement]
        for divisor in ("n", "n-1"):
            for offset in (0, 1):
                for cast in ("before", "after"):
                    found.append(Spelling("layer_norm", placement, divisor, offset, cast, eps))
            for family in ("batch_norm", "group_norm", "instance_norm"):
                found.append(Spelling(family, placement, divisor, eps=eps))
        for offset in (0, 1):
            for cast in ("before", "after"):
                found.append(Spelling("rms_norm", placement, "n", offset, cast, eps, bias=False))
    naive = [Spelling(f, cast=None) for f in ("layer_norm", "batch_norm", "group_norm")]
    return found + naive


SPELLINGS = _spellings()
SHAPES = {
    "layer_norm": (3, 5, 16),
    "rms_norm": (3, 5, 16),
    "batch_norm": (5, 6, 4, 3),
    "group_norm": (3, 6, 4, 5),
    "instance_norm": (3, 6, 4, 5),
}


class ScaleNorm(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.g = nn.Parameter(torch.tensor(math.sqrt(size)))

    def forward(self, x: Tensor) -> Tensor:
        return self.g * x / x.norm(dim=-1, keepdim=True).clamp_min(1e-5)


class OneWeight(nn.Module):
    """An RMS norm with one weight for all entries."""

    def __init__(self, size: int):
        super().__init__()
        self.g = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.g * F.rms_norm(x, x.shape[-1:], eps=1e-6)


class L2Norm(nn.Module):
    """As in SSD: a length over the channels, and a weight for each."""

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 20.0))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1) * self.weight.view(-1, 1)


class PartialRMS(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * (x[..., :4].square().mean(-1, keepdim=True) + 1e-5).rsqrt()


class StandardizedLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        w = (w - w.mean(1, keepdim=True)) / w.std(1, keepdim=True)
        return F.linear(x, w, self.bias)


class DynamicTanh(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.5))
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.alpha * x) * self.weight


class ShuffledGroups(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.view(-1, 2, 3).transpose(1, 2).reshape(-1, 6)
        return F.group_norm(y, 3).view(-1, 3, 2).transpose(1, 2).reshape(-1, 6)


NO_NORMS = {
    "dropout": (nn.Dropout(), (4, 6), "random"),
    "norm and dropout": (nn.Sequential(nn.LayerNorm(6), nn.Dropout()), (4, 6), "random"),
    "tanh": (nn.Tanh(), (4, 6), "nonlinear"),
    "dynamic tanh": (DynamicTanh(6), (4, 6), "nonlinear"),
    "softmax": (nn.Softmax(-1), (4, 6), "not a factor times"),
    "linear": (nn.Linear(6, 6), (4, 6), "affine function of the input"),
    "standardized linear": (StandardizedLinear(6, 6), (4, 6), "its weight is normalized"),
    "narrowing": (nn.Linear(6, 3), (4, 6), r"has shape \(4, 3\)"),
    "norm and linear": (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6)), (4, 6), "mixed in"),
    "norm and tanh": (nn.Sequential(nn.BatchNorm1d(6), nn.Tanh()), (4, 6), "mixed in"),
    "convolution": (nn.Conv1d(6, 6, 3, padding=1), (4, 6, 5), "nothing is normalized"),
    "response": (nn.LocalResponseNorm(3), (4, 6, 5), "windows that overlap"),
    "L2 and weights": (L2Norm(6), (4, 6, 5), "sum of squares"),
    "partial RMS": (PartialRMS(), (4, 6), "different neighbors"),
    "shuffled groups": (ShuffledGroups(), (4, 6), "the same c % [23] share"),
    "one element": (nn.GroupNorm(6, 6), (4, 6), "one element"),
    "mean left": (
        lambda x: x / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt(),
        (4, 6),
        "in the root and not in the numerator",
    ),
    "uncentered root": (
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.square().mean(-1, keepdim=True)).sqrt(),
        (4, 6),
        "in the numerator and not in the root",
    ),
    "half the size": (lambda x: F.layer_norm(x, (6,)) / 2, (4, 6), "0.5 times as large"),
    "scaled sum": (lambda x: x + F.layer_norm(x, (6,)), (4, 6), "64 times the input"),
    "two tensors": (lambda x: (x[0], x[1]), (4, 6), "is a tuple"),
    "batch of one axis": (
        lambda x: (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt(),
        (5, 4, 3),
        "no named norm takes these",
    ),
    "a bump in each row": (
        lambda x: F.layer_norm(x, (6,)) * (1 + (-(x.std(-1, keepdim=True).log() ** 2)).exp()),
        (4, 6),
        "at inputs of size 1e",
    ),
    "not finite": (lambda x: F.layer_norm(x, (6,)) / 0.0, (4, 6), "not finite"),
}
