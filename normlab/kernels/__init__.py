"""The five norms at the speed of memory; `use` chooses what computes those of `normlab.layers`.

A layer is composed of operations, each of which reads and writes the whole tensor. A kernel reads
it once: in pieces that stay in the cache (`chunked`, plain torch) or in compiled loops (`numba`,
the extra `normlab[kernels]`). Nothing here knows the layers; they ask, and get None for what is not
for a kernel. The sum before a norm and the activation behind it can be computed with it
(`add_layer_norm`, `rms_norm_silu` ...).
"""

from normlab.kernels.choice import available, chosen, use
from normlab.kernels.functions import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from normlab.kernels.fused import (
    add_layer_norm,
    add_rms_norm,
    layer_norm_gelu,
    layer_norm_silu,
    rms_norm_gelu,
    rms_norm_silu,
)

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "available",
    "batch_norm",
    "chosen",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "layer_norm_gelu",
    "layer_norm_silu",
    "rms_norm",
    "rms_norm_gelu",
    "rms_norm_silu",
    "use",
]
