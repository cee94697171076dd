"""What stands in a norm's place and is none: named, so that a reason says more than "no norm"."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

from normlab.probing.groups import moved_outputs
from normlab.probing.probe import Probe
from normlab.probing.running import find_running

_FITS = 1e-4  # largest misfit, relative to the largest value, in float32 or better
_FIRST, _LAST = 64, 0.999  # searched slopes are between 1 / _FIRST and _FIRST; |z| of a fit


def name_relative(probe: Probe) -> str:
    """A sentence that names a layer with weights away from 0 and 1; empty where none is known."""
    for describe in (_describe_squash, _describe_response, _describe_renorm):
        with contextlib.suppress(Exception):  # a layer may refuse an input in any way
            said = describe(probe)
            if said:
                return said
    return ""


_SQUASHES: dict[Callable[[Tensor], Tensor], str] = {
    torch.atanh: "weight * tanh(alpha * x) + bias, the form of DyT",
    torch.erfinv: "weight * erf(alpha * x + shift) + bias, the form of Derf",
}


def _describe_squash(probe: Probe) -> str:
    """Of a pointwise function between two limits: undo tanh or erf, and see a straight line."""
    ones = torch.ones(probe.shape, dtype=torch.float64)
    f = probe.measure
    high, low = f(1e6 * ones), f(-1e6 * ones)
    middle, half = (high + low) / 2, (high - low) / 2
    ends = torch.allclose(high, f(2e6 * ones)) and bool((half.abs() > 1e-6).all())
    if not ends or int(moved_outputs(probe, tuple(n // 2 for n in probe.shape)).sum()) > 1:
        return ""
    size = 1.0 * _FIRST
    while size > 1 / _FIRST and float(((f(size * ones) - middle) / half).abs().max()) > 0.9:
        size /= 2
    steps = torch.linspace(-size, size, 7, dtype=torch.float64)
    z = torch.stack([(f(s * ones) - middle) / half for s in steps.tolist()])
    if float(z.abs().max()) > _LAST:
        return ""
    shares = torch.linspace(0, 1, 7, dtype=torch.float64).view(-1, *[1] * len(probe.shape))
    for undo, text in _SQUASHES.items():
        u = undo(z)
        line = u[:1] + (u[-1:] - u[:1]) * shares
        if float((u - line).abs().max()) <= 10 * _FITS * float(u.abs().max()):
            return (
                "pointwise: no statistics are taken; each output is a nonlinear function of its "
                f"own input alone, {text}"
            )
    return ""


def _describe_response(probe: Probe) -> str:
    """Of what keeps the scale: fit x + weight * x * G / mean(G) + bias, channel by channel."""
    ndim = len(probe.shape)
    if ndim < 3:
        return ""
    x = probe.input(8) + 0.5
    rest = probe.measure(x) - x
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


def _describe_renorm(probe: Probe) -> str:
    """Of what is affine in training, too, while it records: batch renorm, within its bounds."""
    x = probe.input(8)
    train, evaluated = (probe.measure(x, training=mode) for mode in (True, False))
    near = torch.allclose(train, evaluated, rtol=1e-4, atol=1e-4 * float(evaluated.abs().max()))
    running = find_running(probe.fresh()) if near and probe.copies else None
    if running is None or running.momentum == 0:
        return ""
    return (
        "in training it records the statistics of the batch, and yet gives what the running ones "
        "give: it is a batch renorm within its bounds, of which one run does not show the batch"
    )
