"""The norms in NumPy and float64: pure functions, forward and hand-derived backward.

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
from normlab.reference.length import ScaleNormCache, scale_norm, scale_norm_backward
from normlab.reference.moments import (
    Moments,
    corrected_two_pass,
    merge,
    naive_one_pass,
    two_pass,
    welford,
)
from normlab.reference.pointwise import (
    DerfGradients,
    DyTGradients,
    PointwiseCache,
    derf,
    derf_backward,
    dyt,
    dyt_backward,
)
from normlab.reference.renorm import BatchRenormCache, batch_renorm, batch_renorm_backward
from normlab.reference.response import (
    FilterResponseCache,
    FilterResponseGradients,
    GlobalResponseCache,
    filter_response_norm,
    filter_response_norm_backward,
    global_response_norm,
    global_response_norm_backward,
)
from normlab.reference.rms import (
    RMSNormCache,
    rms_norm,
    rms_norm_backward,
    rms_norm_backward_by_node,
    rms_norm_jacobian,
)
from normlab.reference.standardization import Gradients, standardize, standardize_backward
from normlab.reference.weights import (
    WeightNormCache,
    WeightNormGradients,
    WeightStandardizationCache,
    weight_norm,
    weight_norm_backward,
    weight_standardization,
    weight_standardization_backward,
)
from normlab.reference.zero_centered import zero_centered_rms_norm, zero_centered_rms_norm_backward

__all__ = [
    "BatchNormCache",
    "BatchRenormCache",
    "DerfGradients",
    "DyTGradients",
    "FilterResponseCache",
    "FilterResponseGradients",
    "GlobalResponseCache",
    "Gradients",
    "GroupNormCache",
    "InstanceNormCache",
    "LayerNormCache",
    "Moments",
    "PointwiseCache",
    "RMSNormCache",
    "ScaleNormCache",
    "WeightNormCache",
    "WeightNormGradients",
    "WeightStandardizationCache",
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_backward_by_node",
    "batch_norm_jacobian",
    "batch_renorm",
    "batch_renorm_backward",
    "corrected_two_pass",
    "derf",
    "derf_backward",
    "dyt",
    "dyt_backward",
    "filter_response_norm",
    "filter_response_norm_backward",
    "global_response_norm",
    "global_response_norm_backward",
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
    "scale_norm",
    "scale_norm_backward",
    "standardize",
    "standardize_backward",
    "two_pass",
    "weight_norm",
    "weight_norm_backward",
    "weight_standardization",
    "weight_standardization_backward",
    "welford",
    "zero_centered_rms_norm",
    "zero_centered_rms_norm_backward",
]
