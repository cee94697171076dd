"""The norms in plain torch, a megabyte at a time: the back end that needs nothing but torch.

The operations of a layer read and write the whole tensor once each. Here the same few operations
run on a piece that stays in the cache, so that memory is read once.
"""

from __future__ import annotations

from normlab.kernels import calls, chunks
from normlab.kernels.differentiation import Kernels

KERNELS = Kernels("chunked", "cpu", chunks, smallest=4096)


def kernels() -> Kernels:
    """What this back end knows."""
    return KERNELS


layer_norm = calls.by_itself(calls.layer_norm, kernels)
rms_norm = calls.by_itself(calls.rms_norm, kernels)
batch_norm = calls.by_itself(calls.batch_norm, kernels)
group_norm = calls.by_itself(calls.group_norm, kernels)
instance_norm = calls.by_itself(calls.instance_norm, kernels)
