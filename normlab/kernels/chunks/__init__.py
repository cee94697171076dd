"""The chunked kernels: each norm with its statistics, and its gradients from these."""

from normlab.kernels.chunks.channels import (
    batch_norm,
    batch_norm_backward,
    group_norm,
    group_norm_backward,
    scale,
    scale_backward,
)
from normlab.kernels.chunks.rows import (
    add_layer_norm,
    add_rms_norm,
    layer_norm,
    layer_norm_backward,
    rms_norm,
    rms_norm_backward,
)

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "batch_norm",
    "batch_norm_backward",
    "group_norm",
    "group_norm_backward",
    "layer_norm",
    "layer_norm_backward",
    "rms_norm",
    "rms_norm_backward",
    "scale",
    "scale_backward",
]
