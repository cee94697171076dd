"""The five norms at the speed of memory; `use` chooses what computes those of `normlab.layers`.

A layer is composed of operations, each of which reads and writes the whole tensor. A kernel reads
it once: in pieces that stay in the cache (`chunked`, plain torch) or in compiled loops (`numba`,
the extra `normlab[kernels]`). Nothing here knows the layers; they ask, and get None for what is not
for a kernel.
"""

from normlab.kernels.choice import available, chosen, use
from normlab.kernels.functions import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)

__all__ = [
    "available",
    "batch_norm",
    "chosen",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "rms_norm",
    "use",
]
