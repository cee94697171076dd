"""The norms after 2016: how each is called, its textbook formula, its mistakes, its invariances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from normlab import layers

Parameters = dict[str, Tensor]
Function = Callable[..., Tensor]


@dataclass(frozen=True)
class LaterNorm:
    """One function of `normlab.layers` as the tests call it.

    Attributes:
        name: of the function.
        shape: of the input, with a size for each axis.
        parameters: shape of each tensor argument after the input, in its order.
        textbook: the formula, written without care: in float64 what is expected of the layer, in
            another dtype the measure of its rounding.
        mutants: mistake -> wrong version with the same arguments.
        same: change of the input -> what the output does; for parameters and eps that do not
            hinder it.
        other: changes that the output shows.
        fixed: arguments by name that are not tensors.
        constant: tensor arguments that get no gradient.
    """

    name: str
    shape: tuple[int, ...]
    parameters: Mapping[str, tuple[int, ...]]
    textbook: Function
    mutants: Mapping[str, Function]
    same: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    fixed: Mapping[str, float | bool] = field(default_factory=dict)
    constant: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def layer(self) -> Function:
        return getattr(layers, self.name)  # type: ignore[no-any-return]

    def tensors(self, *, rms: float = 1.0, mean: float = 0.0, seed: int = 0) -> Parameters:
        """Input and parameters in float64; running statistics near those of the input."""
        g = torch.Generator().manual_seed(seed)

        def normal(shape: tuple[int, ...]) -> Tensor:
            return torch.randn(shape, generator=g, dtype=torch.float64)

        made = {"input": rms * normal(self.shape) + mean}
        for name, shape in self.parameters.items():
            made[name] = 0.7 + 0.3 * normal(shape)
        if "running_mean" in made:
            made["running_mean"] = mean + 0.3 * rms * normal(self.parameters["running_mean"])
            spread = 1 + 0.2 * normal(self.parameters["running_var"])
            made["running_var"] = rms**2 * spread.abs()
        return made

    def expected(self, tensors: Parameters, dy: Tensor) -> dict[str, Tensor]:
        """Output and gradients by the textbook formula in float64."""
        return self.run(self.textbook, tensors, dy, torch.float64)

    @property
    def learned(self) -> tuple[str, ...]:
        return ("input", *(name for name in self.parameters if name not in self.constant))

    def run(
        self, function: Function, tensors: Parameters, dy: Tensor, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """Output and gradients of a function with the layer's arguments."""
        given = {name: t.to(dtype).clone() for name, t in tensors.items()}
        for name in self.learned:
            given[name].requires_grad_()
        y = function(*given.values(), **self.fixed)
        y.backward(dy.to(dtype))
        found = {"y": y.detach()}
        for name in self.learned:
            grad = given[name].grad
            found[name] = torch.zeros_like(given[name]) if grad is None else grad
        return found


def _per_channel(p: Tensor, x: Tensor) -> Tensor:
    return p.view(-1, *(1,) * (x.dim() - 2))


def _dyt(x, alpha, weight, bias):
    return torch.tanh(alpha * x) * weight + bias


def _derf(x, alpha, shift, weight, bias):
    return torch.erf(alpha * x + shift) * weight + bias


def _scale_norm(x, weight, eps=1e-5):
    return weight * x / x.norm(dim=-1, keepdim=True).clamp(min=eps)


def _frn(x, weight, bias, threshold, eps=1e-6):
    dims = tuple(range(2, x.dim()))
    y = x / (x.square().mean(dims, keepdim=True) + eps).sqrt()
    y = y * _per_channel(weight, x) + _per_channel(bias, x)
    return torch.maximum(y, _per_channel(threshold, x).expand_as(y))


def _frn_centered(x, weight, bias, threshold, eps=1e-6):
    return _frn(x - x.mean(tuple(range(2, x.dim())), keepdim=True), weight, bias, threshold, eps)


def _frn_sum(x, weight, bias, threshold, eps=1e-6):
    dims = tuple(range(2, x.dim()))
    y = x / (x.square().sum(dims, keepdim=True) + eps).sqrt()
    y = y * _per_channel(weight, x) + _per_channel(bias, x)
    return torch.maximum(y, _per_channel(threshold, x).expand_as(y))


def _frn_cut_first(x, weight, bias, threshold, eps=1e-6):
    no_cut = torch.full_like(threshold, -torch.inf)
    y = _frn(x, torch.ones_like(weight), torch.zeros_like(bias), no_cut, eps)
    y = torch.maximum(y, _per_channel(threshold, x).expand_as(y))
    return y * _per_channel(weight, x) + _per_channel(bias, x)


def _frn_over_channels(x, weight, bias, threshold, eps=1e-6):
    dims = tuple(range(1, x.dim()))
    y = x / (x.square().mean(dims, keepdim=True) + eps).sqrt()
    y = y * _per_channel(weight, x) + _per_channel(bias, x)
    return torch.maximum(y, _per_channel(threshold, x).expand_as(y))


def _grn(x, weight, bias, eps=1e-6, skip=1.0, channels=1):
    length = x.square().sum(tuple(range(2, x.dim())), keepdim=True).sqrt()
    relative = length / (length.mean(channels, keepdim=True) + eps)
    return _per_channel(weight, x) * (x * relative) + _per_channel(bias, x) + skip * x


def _grn_mean_square(x, weight, bias, eps=1e-6):
    length = x.square().mean(tuple(range(2, x.dim())), keepdim=True)
    relative = length / (length.mean(1, keepdim=True) + eps)
    return _per_channel(weight, x) * (x * relative) + _per_channel(bias, x) + x


def _grn_detached(x, weight, bias, eps=1e-6):
    length = x.square().sum(tuple(range(2, x.dim())), keepdim=True).sqrt().detach()
    relative = length / (length.mean(1, keepdim=True) + eps)
    return _per_channel(weight, x) * (x * relative) + _per_channel(bias, x) + x


def _renorm(
    x, running_mean, running_var, weight, bias, training=True, eps=1e-5, r_max=3.0, d_max=5.0,
    *, detach=True, use_r=True, use_d=True, root=True,
):  # fmt: skip
    dims = (0, *range(2, x.dim()))
    mean = x.mean(dims, keepdim=True)
    var = (x - mean).square().mean(dims, keepdim=True)
    std = (var + eps).sqrt()
    running = _per_channel(running_var, x) + eps
    running = running.sqrt() if root else running
    r = (std / running).clamp(1 / r_max, r_max) if use_r else torch.ones_like(std)
    d = ((mean - _per_channel(running_mean, x)) / running).clamp(-d_max, d_max)
    d = d if use_d else torch.zeros_like(d)
    if detach:
        r, d = r.detach(), d.detach()
    y = (x - mean) / std * r + d
    return y * _per_channel(weight, x) + _per_channel(bias, x)


def _but(function: Function, **changed: object) -> Function:
    return lambda *args, **kwargs: function(*args, **{**kwargs, **changed})


_CHANNELS = {"weight": (5,), "bias": (5,)}

LATER = (
    LaterNorm(
        name="dyt",
        shape=(3, 7, 4),
        parameters={"alpha": (), "weight": (4,), "bias": (4,)},
        textbook=_dyt,
        mutants={
            "slope outside": lambda x, a, w, b: a * torch.tanh(x) * w + b,
            "weight inside": lambda x, a, w, b: torch.tanh(a * x * w) + b,
            "bias inside": lambda x, a, w, b: torch.tanh(a * x + b) * w,
            "erf for tanh": lambda x, a, w, b: torch.erf(a * x) * w + b,
        },
        other=("rescale", "shift", "rescale sample"),
    ),
    LaterNorm(
        name="derf",
        shape=(3, 7, 4),
        parameters={"alpha": (), "shift": (), "weight": (4,), "bias": (4,)},
        textbook=_derf,
        mutants={
            "no shift": lambda x, a, s, w, b: torch.erf(a * x) * w + b,
            "shift first": lambda x, a, s, w, b: torch.erf(a * (x + s)) * w + b,
            "tanh for erf": lambda x, a, s, w, b: torch.tanh(a * x + s) * w + b,
        },
        other=("rescale", "shift", "rescale sample"),
    ),
    LaterNorm(
        name="scale_norm",
        shape=(3, 7, 4),
        parameters={"weight": ()},
        textbook=_scale_norm,
        mutants={
            "mean for sum": lambda x, w: w * x / x.square().mean(-1, keepdim=True).sqrt(),
            "added eps": lambda x, w: w * x / (x.norm(dim=-1, keepdim=True) + 1e-5),
            "centered": lambda x, w: _scale_norm(x - x.mean(-1, keepdim=True), w),
            "whole sample": lambda x, w: w * x / x.norm(dim=(1, 2), keepdim=True),
            "detached": lambda x, w: w * x / x.norm(dim=-1, keepdim=True).detach(),
        },
        same=("rescale", "rescale sample"),
        other=("shift",),
    ),
    LaterNorm(
        name="filter_response_norm",
        shape=(2, 5, 3, 4),
        parameters={**_CHANNELS, "threshold": (5,)},
        textbook=_frn,
        mutants={
            "centered": _frn_centered,
            "sum for mean": _frn_sum,
            "cut before weight": _frn_cut_first,
            "over channels": _frn_over_channels,
            "eps 1e-5": _but(_frn, eps=1e-5),
            "no threshold": lambda x, w, b, t: _frn(x, w, b, torch.full_like(t, -1e9)),
        },
        same=("rescale", "rescale sample", "rescale channel"),
        other=("shift",),
    ),
    LaterNorm(
        name="global_response_norm",
        shape=(2, 5, 3, 4),
        parameters=_CHANNELS,
        textbook=_grn,
        mutants={
            "no skip": _but(_grn, skip=0.0),
            "mean over samples": _but(_grn, channels=0),
            "squared lengths": _grn_mean_square,
            "eps 1e-5": _but(_grn, eps=1e-3),
            "detached": _grn_detached,
        },
        other=("rescale", "rescale sample", "shift", "rescale channel"),
    ),
    LaterNorm(
        name="batch_renorm",
        shape=(6, 5, 3),
        parameters={"running_mean": (5,), "running_var": (5,), **_CHANNELS},
        textbook=_renorm,
        mutants={
            "gradient through r and d": _but(_renorm, detach=False),
            "no r": _but(_renorm, use_r=False),
            "no d": _but(_renorm, use_d=False),
            "running variance for its root": _but(_renorm, root=False),
            "eps 1e-3": _but(_renorm, eps=1e-3),
        },
        other=("rescale", "shift"),
        fixed={"training": True},
        constant=("running_mean", "running_var"),
    ),
)
