"""Does the layer give one answer, and does it normalize at all?"""

from __future__ import annotations

import torch

from normlab.probing.groups import moved_outputs
from normlab.probing.probe import NoNorm, Probe
from normlab.probing.state import preserve_buffers

RANDOM = "two calls with the same input give different outputs: it is random"


def check_answers(probe: Probe) -> None:
    """Require one finite output for one input.

    Raises:
        NoNorm: two calls differ, or an output is not finite.
    """
    x = probe.input(2)
    first, second = probe.measure(x), probe.measure(x)
    if not torch.allclose(first, second, rtol=1e-6, atol=0, equal_nan=True):
        raise NoNorm(RANDOM)
    if not bool(first.isfinite().all()):
        raise NoNorm("normal inputs give outputs that are not finite")


def is_identity(probe: Probe) -> bool:
    """Whether the output is the input, in training and in evaluation."""
    inputs = [probe.input(3), 1e3 * probe.input(4)]
    given = [x.to(probe.dtype).double() for x in inputs]
    return all(
        torch.equal(probe.measure(x, training=mode), x) for x in given for mode in (True, False)
    )


def describe_elementwise(probe: Probe) -> str:
    """What a layer does whose outputs depend each on its own input alone."""
    x, y = probe.input(5), probe.input(6)
    f = probe.measure
    straight = f(x + y) - f(x) - f(y) + f(torch.zeros_like(x))
    if float(straight.abs().max()) <= 1e-4 * float(f(x + y).abs().max()):
        return (
            "each output is a fixed affine function of its own input: no statistics of the "
            "input are taken (a batch norm with frozen statistics does this)"
        )
    return "each output is a nonlinear function of its own input alone: no statistics are taken"


def describe_scaling(probe: Probe) -> str:
    """What a layer is that keeps the scale of its input; empty where it does not keep it."""
    x, y = probe.input(5), probe.input(6)
    f = probe.measure
    rest = f(torch.zeros_like(x))
    sizes = [float((f(k * x) - rest).abs().max()) for k in (1.0, 64.0, 4096.0)]
    if not sizes[0] > 1e-6 * max(float(rest.abs().max()), 1e-3 * float(x.abs().max())):
        return ""
    straight = f(x + y) - f(x) - f(y) + rest
    if float(straight.abs().max()) <= 1e-4 * float(f(x + y).abs().max()):
        return _describe_affine(probe)
    ratios = [sizes[1] / sizes[0], sizes[2] / sizes[1]]
    if all(32 < ratio < 128 for ratio in ratios):
        return (
            f"64 times the input gives {ratios[1]:.3g} times the output: the input is not "
            "normalized, and its scale is kept"
        )
    return ""


def _describe_affine(probe: Probe) -> str:
    x = probe.input(5)
    before = probe.measure(x)
    moved = moved_outputs(probe, tuple(n // 2 for n in probe.shape))
    if int(moved.sum()) <= 1:
        return describe_elementwise(probe)
    text = "the output is an affine function of the input, as of a linear layer or a convolution"
    for tensor in (t for t in probe.tensors.values() if t.dim() > 1):
        with preserve_buffers([], [tensor]):
            tensor.mul_(4.0)
            after = probe.measure(x)
        if torch.allclose(after, before, rtol=1e-3, atol=1e-3 * float(before.abs().max())):
            return (
                f"{text}; its weight is normalized, the input is not (weight standardization, "
                "weight norm)"
            )
    return f"{text}: nothing is normalized"


def resembles_norm(probe: Probe) -> bool:
    """Whether inputs act on each other's outputs, and larger inputs give no larger outputs.

    A softmax does both, and is told by its sums of 1; attention does both to its queries.
    """
    x = probe.input(8) + 0.25
    y, larger, largest = (probe.measure(k * x) for k in (1.0, 64.0, 4096.0))
    size = float(y.abs().max())
    if not size or not all(0.5 < float(z.abs().max()) / size < 2 for z in (larger, largest)):
        return False
    if float(y.min()) >= 0 and any(
        torch.allclose(y.sum(axis), torch.ones(()).double(), atol=1e-3) for axis in range(y.dim())
    ):
        return False
    cell = tuple(n // 2 for n in probe.shape)
    changed = x.clone()
    changed[cell] += 10.0
    moved = (probe.measure(changed) - y).abs() > 1e-6 * size
    moved[cell] = False
    return bool(moved.any()) and not _is_attention(probe)


def _is_attention(probe: Probe) -> bool:
    """Whether a very large input picks its output from the vectors of another argument."""
    size = probe.shape[-1]
    held = (b for module in probe.modules for b in module.buffers())
    values = [b for b in held if b.is_floating_point() and b.dim() > 1 and b.shape[-1] == size]
    if not values:
        return False
    rows = probe.measure(1e8 * probe.input(8)).reshape(-1, size)
    for value in values:
        among = value.detach().to("cpu", torch.float64).reshape(-1, size)
        nearest = torch.cdist(rows, among).amin(1)
        if float(nearest.median()) <= 1e-4 * float(among.norm(dim=1).max()):
            return True
    return False
