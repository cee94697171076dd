"""Groups of every G-th channel: a group norm, once the channels of a group are side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from normlab.fingerprint.report import Fingerprint
from normlab.norms import NORMS
from normlab.probing.groups import StridedGroups
from normlab.probing.probe import Probe

Layer = Callable[[Tensor], Any]


class _Sorted(nn.Module):
    """A layer whose channels are given, and returned, with those of a group side by side."""

    def __init__(self, layer: Layer, axis: int, order: Tensor):
        super().__init__()
        self.layer, self.axis = layer, axis
        self.order = order.tolist()
        self.back = order.argsort().tolist()

    def forward(self, x: Tensor) -> Any:
        """Call the layer in its own order."""
        back, order = (torch.tensor(o, device=x.device) for o in (self.back, self.order))
        return self.layer(x.index_select(self.axis, back)).index_select(self.axis, order)


def read_strided(
    layer: Layer, probe: Probe, strided: StridedGroups, read: Callable[[Layer], Fingerprint]
) -> Fingerprint | None:
    """What a norm over every G-th channel is, but for its order; None where it is something else.

    The groups were seen in the probe, and `read` identifies the layer once they are in order.
    """
    axis, groups, size = strided.axis, strided.groups, probe.shape[strided.axis]
    order = torch.arange(size).view(-1, groups).mT.flatten()
    found = read(_Sorted(layer, axis, order))
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
