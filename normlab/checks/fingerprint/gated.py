"""An RMS norm of the input times a gate that another argument sets, perhaps in blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from normlab.checks.fingerprint.report import Fingerprint
from normlab.checks.probing.layer import ForeignLayer

_LARGE = 1e4  # so large that no eps is seen
_FACTOR = 64.0  # by which an entry is made larger
_MOST = 512  # features of which each is moved by itself


def read_gated(layer: ForeignLayer) -> Fingerprint | None:
    """The RMS norm of the input times a gate that does not depend on it, or None.

    A larger entry makes the mean square of its row larger in proportion to the share of that
    entry, and its own output tells by how much. The shares of a row add up to the number of blocks.
    """
    count = layer.shape[-1]
    if not 1 < count <= _MOST:
        return None
    ones = torch.full(layer.shape, _LARGE, dtype=torch.float64)
    base = layer.measure(ones)
    shares = torch.empty_like(ones)
    for k in range(count):
        x = ones.clone()
        x[..., k] *= _FACTOR
        ratio = _FACTOR * base[..., k] / layer.measure(x)[..., k]
        shares[..., k] = (ratio.square() - 1) / (_FACTOR**2 - 1)
    total = shares.sum(-1)
    blocks = max(1, round(float(total.mean())))
    if count % blocks or not torch.allclose(total, torch.full_like(total, blocks), atol=1e-2):
        return None
    gate = (count / blocks * shares.clamp_min(0)).sqrt()
    one, other = (_factors(layer, gate, seed, blocks) for seed in (5, 6))
    if not torch.allclose(one, other, rtol=1e-3, atol=1e-3 * float(one.abs().max())):
        return None
    axis = len(layer.shape) - 1
    split = f", in blocks of {count // blocks} along axis {axis}" if blocks > 1 else ""
    report = Fingerprint(
        family="rms_norm",
        reduced_axes=(axis,),
        num_groups=blocks if blocks > 1 else None,
        centered=False,
        modulated=True,
        variant=f"of the input times a function of another argument (gated){split}",
    )
    return report.undecided("the size of the gate is not known")


def _factors(layer: ForeignLayer, gate: Tensor, seed: int, blocks: int) -> Tensor:
    x = _LARGE * (layer.input(seed).abs() + 0.5)
    gated = (gate * x).unflatten(-1, (blocks, -1))
    normed = (gated / gated.square().mean(-1, keepdim=True).sqrt()).flatten(-2)
    return torch.where(gate > 1e-2, layer.measure(x) / normed, 0.0)
