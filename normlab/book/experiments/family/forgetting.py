"""Which changes of its input does a layer not show?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from normlab.layers import (
    batch_norm,
    batch_renorm,
    filter_response_norm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)

CHANNELS = 6
_TINY = 1e-30  # an eps that hides nothing
_ONES = torch.ones(CHANNELS, dtype=torch.float64)

# label -> the layer for images of six channels, in float64
LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "batch norm": lambda x: batch_norm(x, None, None, training=True, eps=_TINY),
    "batch renorm": lambda x: batch_renorm(x, 0.3 * _ONES, 2 * _ONES, training=True, eps=_TINY),
    "group norm": lambda x: group_norm(x, 3, eps=_TINY),
    "instance norm": lambda x: instance_norm(x, eps=_TINY),
    "layer norm": lambda x: layer_norm(x, x.shape[1:], eps=_TINY),
    "RMS norm": lambda x: rms_norm(x, x.shape[1:], eps=_TINY),
    "filter response norm": lambda x: filter_response_norm(x, threshold=0 * _ONES, eps=_TINY),
}


def _first(x: Tensor) -> Tensor:
    return (torch.arange(len(x)) == 0).view(-1, 1, 1, 1)


def _third_channel(x: Tensor) -> Tensor:
    return (torch.arange(x.shape[1]) == 2).view(1, -1, 1, 1)


# label -> change of an image batch
CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "the other images": lambda x: torch.where(_first(x), x, x.flip(0) + 1),
    "everything times 3": lambda x: 3 * x,
    "one channel times 3": lambda x: torch.where(_third_channel(x), 3 * x, x),
    "everything plus 2": lambda x: x + 2,
}


def find_forgotten(seed: int = 0) -> dict[str, set[str]]:
    """Apply each change to a random batch, and compare the outputs.

    Returns:
        layer -> changes that leave the first image's output as it was, to ten digits; for the
        changes of one channel or everything, also that of all other images.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, CHANNELS, 5, 4, generator=generator, dtype=torch.float64)
    found: dict[str, set[str]] = {}
    for name, layer in LAYERS.items():
        found[name] = set()
        for label, change in CHANGES.items():
            rows = slice(0, 1) if label == "the other images" else slice(None)
            difference = (layer(change(x)) - layer(x))[rows].abs().max()
            if difference < 1e-10:
                found[name].add(label)
    return found
