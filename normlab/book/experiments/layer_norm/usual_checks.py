"""Which of the usual checks notice a wrong LayerNorm?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import layer_norm as torch_layer_norm

from normlab.book.experiments.sweep import experiment
from normlab.checks import LAYER_NORM_MUTANTS, check_layer

Check = Literal["shape", "values", "gradient of sum", "random gradient", "check_layer"]
CHECKS: tuple[Check, ...] = get_args(Check)
Layer = Callable[..., Tensor]
LAYERS = ("torch", *LAYER_NORM_MUTANTS)


def _gradient(layer: Layer, x: Tensor, dy: Tensor, *parameters: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(layer(leaf, x.shape[-1:], *parameters), leaf, dy)[0]


def _noticed_by(layer: Layer, seed: int) -> set[str]:
    generator = torch.Generator().manual_seed(seed)
    x, dy = torch.randn(2, 4, 6, 64, generator=generator)
    features = (64,)
    weight, bias = torch.randn(2, *features, generator=generator)

    def differ(a: Tensor, b: Tensor) -> bool:
        return not bool((a - b).abs().max() <= 1e-4)

    y = layer(x, features)
    ones = torch.ones_like(x)
    verdicts: dict[Check, bool] = {
        "shape": y.shape != x.shape,
        "values": differ(y, torch_layer_norm(x, features)),
        "gradient of sum": differ(_gradient(layer, x, ones), _gradient(torch_layer_norm, x, ones)),
        "random gradient": differ(
            _gradient(layer, x, dy, weight, bias), _gradient(torch_layer_norm, x, dy, weight, bias)
        ),
    }
    return {check for check, noticed in verdicts.items() if noticed}


def _known(layer: str) -> None:
    if layer not in LAYERS:
        raise ValueError(f"layer: got {layer!r}; expected one of {', '.join(LAYERS)}")


@experiment(layer=LAYERS, condition=_known)
def usual_checks(layer: str) -> dict[str, list[Check]]:
    """Put one layer through five checks, the first four with three inputs.

    Args:
        layer: "torch", or the name of a wrong one in :mod:`normlab.checks`.

    Returns:
        noticed: the checks that reject it.
    """
    tested: Layer = torch_layer_norm if layer == "torch" else LAYER_NORM_MUTANTS[layer]
    found = set().union(*(_noticed_by(tested, seed) for seed in (0, 1, 2)))
    if not check_layer(tested, like="layer_norm").passed:
        found.add("check_layer")
    return {"noticed": [check for check in CHECKS if check in found]}
