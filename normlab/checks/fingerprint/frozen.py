"""Batch norm with fixed statistics: an affine function whose factor and summand follow buffers."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from normlab.checks.fingerprint.evidence import Evidence
from normlab.checks.probing.measurements import shortest
from normlab.checks.probing.names import find_running_names
from normlab.checks.probing.state import tensors_of
from normlab.norms import FROZEN

_near = partial(torch.allclose, rtol=1e-3)
# how many times larger the root is at a variance of eps than at 0
_PLACES: list[tuple[Literal["inside", "outside", "clamp"], float]]
_PLACES = [("inside", 2**0.5), ("outside", 2.0), ("clamp", 1.0)]


def read_frozen(found: Evidence) -> bool:
    """Fill the report of such a layer, whose variance is moved to see eps, and then its mean."""
    report, layer = found.report, found.probe.fresh()
    if not layer.modules:
        return False  # a function has no buffers
    tensors = {n: t for n, t in tensors_of(layer.modules[0]).items() if t.numel() > 1}
    names = [name or "" for name in find_running_names(list(tensors))]
    if not (found.probe.copies and set(names) <= tensors.keys()):
        return False
    mean, var = (tensors[name] for name in names)
    before = [mean.clone(), var.clone()]
    layer(layer.input(5), keep=True)
    now = tensors_of(layer.modules[0])
    if not all(torch.equal(now[n], old) for n, old in zip(names, before, strict=True)):
        return False  # they are moved

    def measure(value: float) -> tuple[Tensor, Tensor]:
        var.fill_(value)
        summand = layer.measure(torch.zeros(layer.shape))
        return layer.measure(torch.ones(layer.shape)) - summand, summand

    weight = measure(1e8)[0] * 1e4
    root = (weight / measure(1e-30)[0]).median()
    factor, summand = measure(float(root) ** 2)
    mean.add_(1.0)
    affine = _near(measure(float(root) ** 2)[1] - summand, -factor)
    # without eps, the root of 1e-30 was left
    seen = [p for p, by in _PLACES if _near(weight / factor, root * by)] if root > 2e-15 else [None]
    if not (seen and affine and _near(measure(1e6)[0] * 1e3, weight)):
        return False
    eps = root if seen == ["outside"] else root**2
    report.family, report.reduced_axes, report.centered = FROZEN, (), True
    report.running_statistics, report.affine = True, len(tensors) > 2
    report.eps = shortest(float(eps), 1e-3) if seen[0] else 0.0
    report.eps_placement = seen[0]
    why = "torch's batch norms give the same in evaluation alone"
    report.undecided("its statistics are fixed").reasons["nearest_torch"] = why
    return True
