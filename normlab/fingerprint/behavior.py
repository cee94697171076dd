"""Does the layer give one answer, and does it normalize at all?"""

from __future__ import annotations

import torch

from normlab.probing.probe import NoNorm, Probe


def check_answers(probe: Probe) -> None:
    """Require one finite output for one input.

    Raises:
        NoNorm: two calls differ, or an output is not finite.
    """
    x = probe.input(2)
    first, second = probe.measure(x), probe.measure(x)
    if not torch.allclose(first, second, rtol=1e-6, atol=0, equal_nan=True):
        raise NoNorm("two calls with the same input give different outputs: it is random")
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
