"""Which gradient checks does a wrong layer norm pass?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import gradcheck

from normlab.checks import check_layer
from normlab.checks.mutants import find_mutant
from normlab.experiments.sweep import experiment
from normlab.layers import layer_norm

Layer = Callable[..., Tensor]


def _fits(function: Callable[..., Tensor], *inputs: Tensor) -> bool:
    """Does the gradient of the function fit its values? (What `gradcheck` asks.)"""
    leaves = [value.clone().requires_grad_() for value in inputs]
    return bool(gradcheck(function, leaves, raise_exception=False))


@experiment(mistake=("none", "bessel", "missing_projection_term", "missing_weight"))
def gradient_checks(mistake: str) -> dict[str, list[str]]:
    """Put one layer through every check, in float64.

    Args:
        mistake: name of a wrong layer of :func:`normlab.checks.mutants.mutants`; "none" is the
            right one.

    Returns:
        passed: the checks that it passes, of these: the gradient by the input of the sum of all
            outputs; by weight and bias alone, for a random upstream gradient; of every output by
            the input, with a weight of 1; by input, weight and bias, with a random weight; and
            :func:`normlab.checks.check_layer`.
    """
    right = mistake == "none"
    layer: Layer = layer_norm if right else find_mutant("layer_norm", mistake).make()
    generator = torch.Generator().manual_seed(0)
    x, dy = torch.randn(2, 3, 5, generator=generator).double()
    weight, bias = torch.randn(2, 5, generator=generator).double()
    shape, ones, zeros = (5,), torch.ones_like(weight), torch.zeros_like(bias)
    verdicts = {
        "of the sum": _fits(lambda x: layer(x, shape, ones, zeros).sum(), x),
        "by parameters": _fits(lambda w, b: (layer(x, shape, w, b) * dy).sum(), weight, bias),
        "weight of 1": _fits(lambda x: layer(x, shape, ones, zeros), x),
        "random weight": _fits(lambda x, w, b: layer(x, shape, w, b), x, weight, bias),
        "check_layer": check_layer(layer, like="layer_norm").passed,
    }
    return {"passed": [check for check, passed in verdicts.items() if passed]}
