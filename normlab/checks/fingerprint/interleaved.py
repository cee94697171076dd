"""Groups of every G-th channel: a group norm, once the channels of a group are side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from normlab.checks.fingerprint.report import Fingerprint
from normlab.checks.probing.arguments import Wrapped
from normlab.checks.probing.groups import InterleavedGroups
from normlab.norms import NORMS

Layer = Callable[[Tensor], Any]


def _sorted(layer: Layer, axis: int, order: Tensor) -> Wrapped:
    """A layer whose channels are given, and returned, with those of a group side by side."""
    back = order.argsort()

    def call(layer: Layer, x: Tensor) -> Any:
        y = layer(x.index_select(axis, back.to(x.device)))
        return y.index_select(axis, order.to(x.device))

    return Wrapped(layer, call)


def read_interleaved(
    layer: Layer, size: int, seen: InterleavedGroups, read: Callable[[Layer], Fingerprint]
) -> Fingerprint | None:
    """The report of a group norm whose groups hold every G-th channel; None of anything else.

    `size` is the number of channels, and `read` identifies the layer once they are in order.
    """
    axis, groups = seen.axis, seen.groups
    order = torch.arange(size).view(-1, groups).mT.flatten()
    found = read(_sorted(layer, axis, order))
    record = NORMS.get(str(found.family))
    if record is None or not record.grouped or found.num_groups != groups:
        return None
    index = ", ".join(":" for _ in range(axis))
    pattern = (
        f"channels c with the same c % {groups} share statistics: strided groups, which torch's "
        "GroupNorm does not have"
    )
    remedy = (
        f"order = torch.arange({size}).view({size // groups}, {groups}).mT.flatten() puts the "
        f"channels of a group side by side: it is {found.nearest_torch or 'a group norm'} of "
        f"x[{index}, order], whose outputs go back by [{index}, order.argsort()], with weight and "
        "bias in that order, too"
    )
    found.family = found.num_groups = found.nearest_torch = None
    found.equivalents = []
    found.state = {}
    found.reasons |= {
        "family": f"{pattern}. {remedy}",
        "num_groups": pattern,
        "nearest_torch": f"{pattern}. {remedy}",
    }
    found.resembles_norm = True
    return found
