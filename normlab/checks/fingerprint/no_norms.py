"""What is no norm: named, so that a reason says more than "no norm"."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

from normlab.checks.probing.groups import Groups, moved_outputs
from normlab.checks.probing.layer import ForeignLayer, NoNorm
from normlab.checks.probing.running import find_running
from normlab.checks.probing.state import preserve_buffers

RANDOM = "two calls with the same input give different outputs: it is random"


def check_answers(layer: ForeignLayer) -> None:
    """Require one finite output for one input.

    Raises:
        NoNorm: two calls differ, or an output is not finite.
    """
    x = layer.input(2)
    first, second = layer.measure(x), layer.measure(x)
    if not torch.allclose(first, second, rtol=1e-6, atol=0, equal_nan=True):
        raise NoNorm(RANDOM)
    if not bool(first.isfinite().all()):
        raise NoNorm("normal inputs give outputs that are not finite")


def is_identity(layer: ForeignLayer) -> bool:
    """Whether the output is the input, in training and in evaluation."""
    inputs = [layer.input(3), 1e3 * layer.input(4)]
    given = [x.to(layer.dtype).double() for x in inputs]
    return all(
        torch.equal(layer.measure(x, training=mode), x) for x in given for mode in (True, False)
    )


def describe_elementwise(layer: ForeignLayer) -> str:
    """What a layer does whose outputs depend each on its own input alone."""
    x, y = layer.input(5), layer.input(6)
    f = layer.measure
    straight = f(x + y) - f(x) - f(y) + f(torch.zeros_like(x))
    if float(straight.abs().max()) <= 1e-4 * float(f(x + y).abs().max()):
        return "each output is a fixed affine function of its own input: no statistics are taken"
    return "each output is a nonlinear function of its own input alone: no statistics are taken"


def describe_scaling(layer: ForeignLayer) -> str:
    """What a layer is that keeps the scale of its input; empty where it does not keep it."""
    x, y = layer.input(5), layer.input(6)
    f = layer.measure
    rest = f(torch.zeros_like(x))
    sizes = [float((f(k * x) - rest).abs().max()) for k in (1.0, 64.0, 4096.0)]
    if not sizes[0] > 1e-6 * max(float(rest.abs().max()), 1e-3 * float(x.abs().max())):
        return ""
    straight = f(x + y) - f(x) - f(y) + rest
    if float(straight.abs().max()) <= 1e-4 * float(f(x + y).abs().max()):
        return _describe_affine(layer)
    ratios = [sizes[1] / sizes[0], sizes[2] / sizes[1]]
    if all(32 < ratio < 128 for ratio in ratios):
        return (
            f"64 times the input gives {ratios[1]:.3g} times the output: the input is not "
            "normalized, and its scale is kept"
        )
    return ""


def _describe_affine(layer: ForeignLayer) -> str:
    x = layer.input(5)
    before = layer.measure(x)
    moved = moved_outputs(layer, tuple(n // 2 for n in layer.shape))
    if int(moved.sum()) <= 1:
        return describe_elementwise(layer)
    text = "the output is an affine function of the input, as of a linear layer or a convolution"
    for tensor in (t for t in layer.tensors.values() if t.dim() > 1):
        with preserve_buffers([], [tensor]):
            tensor.mul_(4.0)
            after = layer.measure(x)
        if torch.allclose(after, before, rtol=1e-3, atol=1e-3 * float(before.abs().max())):
            return (
                f"{text}; its weight is normalized, the input is not (weight standardization, "
                "weight norm)"
            )
    return f"{text}: nothing is normalized"


_MEASURES: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    "the mean of their magnitudes": lambda x, axes: x.abs().mean(axes, keepdim=True),
    "the sum of their magnitudes": lambda x, axes: x.abs().sum(axes, keepdim=True),
    "their largest magnitude": lambda x, axes: x.abs().amax(axes, keepdim=True),
    "their sum": lambda x, axes: x.sum(axes, keepdim=True),
}


def name_measure(layer: ForeignLayer, groups: Groups) -> str:
    """What inputs are divided by, where that is no root of squares; empty if it is not known."""
    inputs = [1e3 * (layer.input(seed).abs() + 0.5) * layer.input(9).sign() for seed in (5, 6)]
    outputs = [layer.measure(x) for x in inputs]
    for name, measure in _MEASURES.items():
        views = (groups.view(x) for x in inputs)
        sizes = (measure(view, axes).expand_as(view).reshape(layer.shape) for view, axes in views)
        one, other = (y * size / x for x, y, size in zip(inputs, outputs, sizes, strict=True))
        if torch.allclose(one, other, rtol=1e-3, atol=1e-4 * float(one.abs().max())):
            return name
    return ""


def resembles_norm(layer: ForeignLayer) -> bool:
    """Whether inputs act on each other's outputs, and larger inputs give no larger outputs.

    A softmax does both, and is told by its sums of 1; attention does both to its queries.
    """
    x = layer.input(8) + 0.25
    y, larger, largest = (layer.measure(k * x) for k in (1.0, 64.0, 4096.0))
    size = float(y.abs().max())
    if not size or not all(0.5 < float(z.abs().max()) / size < 2 for z in (larger, largest)):
        return False
    if float(y.min()) >= 0 and any(
        torch.allclose(y.sum(axis), torch.ones(()).double(), atol=1e-3) for axis in range(y.dim())
    ):
        return False
    cell = tuple(n // 2 for n in layer.shape)
    changed = x.clone()
    changed[cell] += 10.0
    moved = (layer.measure(changed) - y).abs() > 1e-6 * size
    moved[cell] = False
    return bool(moved.any()) and not _is_attention(layer)


def _is_attention(layer: ForeignLayer) -> bool:
    """Whether a very large input picks its output from the vectors of another argument."""
    size = layer.shape[-1]
    held = (b for module in layer.modules for b in module.buffers())
    values = [b for b in held if b.is_floating_point() and b.dim() > 1 and b.shape[-1] == size]
    if not values:
        return False
    rows = layer.measure(1e8 * layer.input(8)).reshape(-1, size)
    for value in values:
        among = value.detach().to("cpu", torch.float64).reshape(-1, size)
        nearest = torch.cdist(rows, among).amin(1)
        if float(nearest.median()) <= 1e-4 * float(among.norm(dim=1).max()):
            return True
    return False


_FITS = 1e-4  # largest misfit, relative to the largest value, in float32 or better
_FIRST, _LAST = 64, 0.999  # searched slopes are between 1 / _FIRST and _FIRST; |z| of a fit


def name_other_layer(layer: ForeignLayer) -> str:
    """A sentence that names a layer with weights away from 0 and 1; empty where none is known."""
    for describe in (_describe_squash, _describe_response, _describe_renorm):
        with contextlib.suppress(Exception):  # a layer may refuse an input in any way
            said = describe(layer)
            if said:
                return said
    return ""


_SQUASHES: dict[Callable[[Tensor], Tensor], str] = {
    torch.atanh: "weight * tanh(alpha * x) + bias, the form of DyT",
    torch.erfinv: "weight * erf(alpha * x + shift) + bias, the form of Derf",
}


def _describe_squash(layer: ForeignLayer) -> str:
    """Of a pointwise function between two limits: undo tanh or erf, and see a straight line."""
    ones = torch.ones(layer.shape, dtype=torch.float64)
    f = layer.measure
    high, low = f(1e6 * ones), f(-1e6 * ones)
    middle, half = (high + low) / 2, (high - low) / 2
    ends = torch.allclose(high, f(2e6 * ones)) and bool((half.abs() > 1e-6).all())
    if not ends or int(moved_outputs(layer, tuple(n // 2 for n in layer.shape)).sum()) > 1:
        return ""
    size = 1.0 * _FIRST
    while size > 1 / _FIRST and float(((f(size * ones) - middle) / half).abs().max()) > 0.9:
        size /= 2
    steps = torch.linspace(-size, size, 7, dtype=torch.float64)
    z = torch.stack([(f(s * ones) - middle) / half for s in steps.tolist()])
    if float(z.abs().max()) > _LAST:
        return ""
    shares = torch.linspace(0, 1, 7, dtype=torch.float64).view(-1, *[1] * len(layer.shape))
    for undo, text in _SQUASHES.items():
        u = undo(z)
        line = u[:1] + (u[-1:] - u[:1]) * shares
        if float((u - line).abs().max()) <= 10 * _FITS * float(u.abs().max()):
            return (
                "pointwise: no statistics are taken; each output is a nonlinear function of its "
                f"own input alone, {text}"
            )
    return ""


def _describe_response(layer: ForeignLayer) -> str:
    """Of what keeps the scale: fit x + weight * x * G / mean(G) + bias, channel by channel."""
    ndim = len(layer.shape)
    if ndim < 3:
        return ""
    x = layer.input(8) + 0.5
    rest = layer.measure(x) - x
    for channel in (1, ndim - 1):
        positions = [a for a in range(1, ndim) if a != channel]
        length = torch.linalg.vector_norm(x, dim=positions, keepdim=True)
        strengthened = (x * length / length.mean(channel, keepdim=True)).movedim(channel, 0)
        a, b = strengthened.flatten(1), rest.movedim(channel, 0).flatten(1)
        a_mean, b_mean = a.mean(1, keepdim=True), b.mean(1, keepdim=True)
        slope = ((a - a_mean) * (b - b_mean)).sum(1, keepdim=True)
        slope = slope / (a - a_mean).square().sum(1, keepdim=True)
        misfit = (b - b_mean - slope * (a - a_mean)).abs().max()
        if float(slope.abs().min()) > _FITS and float(misfit) <= _FITS * float(b.abs().max()):
            return (
                "the scale of the input is kept, for 64 times the input gives 64 times the output: "
                "it is a global response norm, x + weight * x * G / mean(G) + bias, with G the "
                "length of a channel"
            )
    return ""


def _describe_renorm(layer: ForeignLayer) -> str:
    """Of what is affine in training, too, while it records: batch renorm, within its bounds."""
    x = layer.input(8)
    train, evaluated = (layer.measure(x, training=mode) for mode in (True, False))
    near = torch.allclose(train, evaluated, rtol=1e-4, atol=1e-4 * float(evaluated.abs().max()))
    running = find_running(layer.fresh()) if near and layer.copies else None
    if running is None or running.momentum == 0:
        return ""
    return (
        "in training it records the statistics of the batch, and yet gives what the running ones "
        "give: it is a batch renorm within its bounds, of which one run does not show the batch"
    )
