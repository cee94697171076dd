"""The norms that torch has, in NumPy and float64: forward and hand-derived backward, all pure.

Nothing here imports torch. `NAME(...)` takes the arguments of `torch.nn.functional.NAME` and
returns the output and a cache, what the backward pass needs. `NAME_backward(dy, cache)` returns
`(dx, dweight, dbias)`, each of the shape of what it is the gradient by, and None where there is no
such parameter; `dy` is the gradient of a loss by the output, and a ValueError says that it has
another shape.
"""

from normlab.reference.batch import (
    BatchNormCache,
    batch_norm,
    batch_norm_backward,
    batch_norm_backward_by_node,
    batch_norm_jacobian,
)
from normlab.reference.group import (
    GroupNormCache,
    group_norm,
    group_norm_backward,
    group_norm_backward_by_node,
    group_norm_jacobian,
)
from normlab.reference.instance import (
    InstanceNormCache,
    instance_norm,
    instance_norm_backward,
    instance_norm_backward_by_node,
    instance_norm_jacobian,
)
from normlab.reference.layer import (
    LayerNormCache,
    layer_norm,
    layer_norm_backward,
    layer_norm_backward_by_node,
    layer_norm_jacobian,
)
from normlab.reference.moments import (
    Moments,
    corrected_two_pass,
    merge,
    naive_one_pass,
    two_pass,
    welford,
)
from normlab.reference.rms import (
    RMSNormCache,
    rms_norm,
    rms_norm_backward,
    rms_norm_backward_by_node,
    rms_norm_jacobian,
)
from normlab.reference.standardization import Gradients, standardize, standardize_backward

__all__ = [
    "BatchNormCache",
    "Gradients",
    "GroupNormCache",
    "InstanceNormCache",
    "LayerNormCache",
    "Moments",
    "RMSNormCache",
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_backward_by_node",
    "batch_norm_jacobian",
    "corrected_two_pass",
    "group_norm",
    "group_norm_backward",
    "group_norm_backward_by_node",
    "group_norm_jacobian",
    "instance_norm",
    "instance_norm_backward",
    "instance_norm_backward_by_node",
    "instance_norm_jacobian",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_backward_by_node",
    "layer_norm_jacobian",
    "merge",
    "naive_one_pass",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_backward_by_node",
    "rms_norm_jacobian",
    "standardize",
    "standardize_backward",
    "two_pass",
    "welford",
]
