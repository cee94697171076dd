"""A norm of any family with one mistake: the mistakes that no single family owns.

:func:`make_wrong` gives a function with the signature of the family's function in
:mod:`torch.nn.functional`. Without a mistake the function is right, which the tests make sure
of: what kills a mutant is its mistake.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normlab.checks.mutants.backward import BACKWARD_MISTAKES, WrongBackward
from normlab.checks.mutants.listings import WrongNorm, affine
from normlab.checks.mutants.threshold import put_threshold
from normlab.norms import NORMS

FORWARD_MISTAKES: dict[str, str] = {
    "eps_outside": "sqrt(var) + eps instead of sqrt(var + eps)",
    "eps_clamp": "eps is a lower bound: max(sqrt(var), sqrt(eps))",
    "other_eps": "a tenth of the default eps",
    "bessel": "divisor n - 1 in the forward pass",
    "one_pass": "mean(x²) - mean(x)²",
    "uncentered_numerator": "divides x, not x - mean",
    "missing_centering": "nothing is centered",
    "centered": "the mean is subtracted where it should stay",
    "wrong_axis": "the mean over other axes",
    "wrong_grouping": "neighboring channels fall into different groups",
    "sum_not_mean": "the sum of squares",
    "weight_offset": "multiplies by 1 + weight, or by weight where that is right",
    "bias_first": "adds the bias before it multiplies by the weight",
    "detached_statistics": "mean and variance are constants in the backward pass",
    "half_precision_statistics": "squares 16-bit input in 16 bits",
    "output_dtype": "16-bit input gives float32 output",
    "in_place": "subtracts the mean from the input itself",
    "non_contiguous": "reads memory in order, whatever the strides",
    "empty_input": "an empty input gives one row",
    "eps_argument": "ignores the eps that it is given",
    "constant_input": "an input without variance gives NaN",
    "batch_of_one": "squeezes the batch axis away",
    "weight_raises": "lays the weight along the batch, where it does not fit",
    "bias_raises": "lays the bias along the batch, where it does not fit",
    "no_weight_raises": "multiplies by a weight that may be None",
    "rank_raises": "takes two axes or four, and not three",
}


_PLACES = ("eps_outside", "eps_clamp")


@dataclass
class _Layout:
    """Where a family reduces: axes of a view of the input, and the shape of its parameters."""

    view: tuple[int, ...]
    dims: tuple[int, ...]
    parameters: tuple[int, ...]


def _layout(like: str, mistake: str, x: Tensor, own: int | Sequence[int]) -> _Layout:
    shape = tuple(x.shape)
    wrong = mistake == "wrong_axis"
    norm = NORMS[like]
    if norm.trailing:
        assert not isinstance(own, int)
        k = len(own)
        dims = (x.dim() - k - 1,) if wrong else tuple(range(x.dim() - k, x.dim()))
        kept = norm.parameter_shape(shape, k) or (1,) * k
        return _Layout(shape, dims, (1,) * (x.dim() - k) + kept)
    parameters = (1, shape[1]) + (1,) * (x.dim() - 2)
    spatial = tuple(range(2, x.dim()))
    if norm.grouped:
        assert isinstance(own, int)
        size = shape[1] // own
        view = (shape[0], own, size, *shape[2:])
        dims = tuple(range(2, len(view)))
        if mistake == "wrong_grouping":
            view, dims = (shape[0], size, own, *shape[2:]), (1, *dims[1:])
        return _Layout(view, (0, *dims) if wrong else dims, parameters)
    if norm.over_batch:
        return _Layout(shape, (0, 1) if wrong else (0, *spatial), parameters)
    return _Layout(shape, (1,) if wrong else spatial, parameters)


def _statistics(mistake: str, x: Tensor, like: str, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    source = x.detach() if mistake == "detached_statistics" else x
    mean = source.mean(dims, keepdim=True)
    norm = NORMS[like]
    family = norm.centered and mistake != "missing_centering"
    centered = family or mistake == "centered"
    center = mean if centered else torch.zeros_like(mean)
    var = (source - center).square().mean(dims, keepdim=True)
    if norm.spread == "mean magnitude":
        var = (source - center).abs().mean(dims, keepdim=True).square()
    if mistake == "one_pass":
        var = (source.square().mean(dims, keepdim=True) - mean.square()).clamp_min(0)
    count = source.numel() / max(mean.numel(), 1)
    if mistake == "bessel":
        var = var * (count / (count - 1) if count > 1 else torch.nan)
    if (mistake == "sum_not_mean") != (norm.spread == "sum of squares"):
        var = var * (count**2 if norm.spread == "mean magnitude" else count)
    return center, var


def _divide(like: str, mistake: str, numerator: Tensor, var: Tensor, eps: float) -> Tensor:
    place = mistake.removeprefix("eps_") if mistake in _PLACES else NORMS[like].eps_placement
    if place == "outside":
        root = var.sqrt() + eps
    elif place == "clamp":
        root = var.sqrt().clamp_min(eps if NORMS[like].eps_bounds == "root" else eps**0.5)
    else:
        root = (var + eps).sqrt()
    return numerator / (torch.where(var == 0, var, root) if mistake == "constant_input" else root)


def _affine(
    like: str,
    mistake: str,
    x_hat: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    shape: tuple[int, ...],
) -> Tensor:
    offset = NORMS[like].weight_offset
    if mistake == "weight_offset":
        offset = 1 - offset
    factor = None
    if weight is not None or mistake == "no_weight_raises":
        given: Any = weight
        factor = (offset + given if offset else given).view(shape)
    summand = None if bias is None else bias.view(shape)
    own = next((axis for axis, size in enumerate(shape) if size > 1), 0)
    if mistake == "weight_raises" and factor is not None:
        factor = factor.transpose(0, own)
    if mistake == "bias_raises" and summand is not None:
        summand = summand.transpose(0, own)
    if mistake == "bias_first" and factor is not None and summand is not None:
        return (x_hat + summand) * factor
    return affine(x_hat, factor, summand)


def normalize(
    like: str,
    mistake: str,
    x: Tensor,
    own: int | Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, mean and variance of a norm with one mistake, or with none if its name is unknown.

    `own` is the normalized_shape of layer and RMS norm, the num_groups of group norm, else ignored.
    """
    dtype = x.dtype
    if mistake == "eps_argument" or eps is None:
        eps = NORMS[like].eps or torch.finfo(torch.float32).eps
    if mistake == "other_eps" and eps < 1e-4:
        eps = eps / 10
    if mistake == "in_place":
        x.data.sub_(x.data.mean())
    if mistake == "rank_raises" and x.dim() == 3:
        x = x.flatten(2, 3)
    if mistake == "non_contiguous":
        x = x.as_strided(x.shape, torch.empty(x.shape).stride())
    half = dtype in (torch.float16, torch.bfloat16)
    if half and mistake != "half_precision_statistics":
        x = x.float()
        weight, bias = (None if t is None else t.float() for t in (weight, bias))
    layout = _layout(like, mistake, x, own)
    viewed = x.reshape(layout.view)
    mean, var = _statistics(mistake, viewed, like, layout.dims)
    if mistake in BACKWARD_MISTAKES:
        offset, centered = NORMS[like].weight_offset, NORMS[like].centered
        factor = weight if weight is None or not offset else offset + weight
        y = WrongBackward.apply(x, factor, bias, layout, eps, centered, mistake)
    else:
        numerator = viewed if mistake == "uncentered_numerator" else viewed - mean
        x_hat = _divide(like, mistake, numerator, var, eps).reshape(x.shape)
        y = _affine(like, mistake, x_hat, weight, bias, layout.parameters)
    if mistake == "empty_input" and not y.numel():
        y = y.new_zeros(1, *y.shape[1:])
    if mistake == "batch_of_one":
        y = y.squeeze(0)
    return (y if mistake == "output_dtype" else y.to(dtype)), mean, var


def make_wrong(like: str, mistake: str = "") -> WrongNorm:
    """A norm without running statistics, with one mistake and the record's signature."""
    norm = NORMS[like]
    either, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    defaults = dict.fromkeys(("input", "normalized_shape", "num_groups"), empty)
    roles = "input", *norm.roles
    signature = inspect.Signature(
        [inspect.Parameter(role, either, default=defaults.get(role)) for role in roles]
    )

    def wrong(*args: Any, **kwargs: Any) -> Tensor:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given, x = bound.arguments, bound.arguments["input"]
        own = given.get("normalized_shape", given.get("num_groups", x.shape[-1:]))
        weight, bias, eps = (given.get(role) for role in ("weight", "bias", "eps"))
        y = normalize(like, mistake, x, own, weight, bias, eps)[0]
        return put_threshold(mistake, y, given.get("threshold"), weight, bias)

    wrong.__signature__ = signature  # type: ignore[attr-defined]
    return wrong
