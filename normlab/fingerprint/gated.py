"""An RMS norm of the input times a gate, which another argument sets."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.fingerprint.report import Fingerprint
from normlab.probing.layer import ForeignLayer

_LARGE = 1e4  # so large that no eps is seen
_MOST = 512  # features of which each is moved by itself


def read_gated(layer: ForeignLayer) -> Fingerprint | None:
    """What a norm over the last axis is of whose input each entry is multiplied; None if it is not.

    Twice an entry makes the mean square of its row larger by three times the share of that entry,
    and its own output tells by how much.
    """
    count = layer.shape[-1]
    if not 1 < count <= _MOST:
        return None
    ones = torch.full(layer.shape, _LARGE, dtype=torch.float64)
    base = layer.measure(ones)
    shares = torch.empty_like(ones)
    for k in range(count):
        x = ones.clone()
        x[..., k] *= 2
        shares[..., k] = ((2 * base[..., k] / layer.measure(x)[..., k]).square() - 1) / 3
    if not bool((shares > 0).all()):
        return None
    gate = (count * shares).sqrt()
    one, other = (_factors(layer, gate, seed) for seed in (5, 6))
    if not torch.allclose(one, other, rtol=1e-3, atol=1e-3 * float(one.abs().max())):
        return None
    report = Fingerprint(
        family="rms_norm",
        reduced_axes=(len(layer.shape) - 1,),
        centered=False,
        modulated=True,
        variant="of the input times a function of another argument (gated)",
    )
    return report.undecided("the size of the gate is not known")


def _factors(layer: ForeignLayer, gate: Tensor, seed: int) -> Tensor:
    x = _LARGE * (layer.input(seed).abs() + 0.5)
    gated = gate * x
    return layer.measure(x) / (gated / gated.square().mean(-1, keepdim=True).sqrt())
