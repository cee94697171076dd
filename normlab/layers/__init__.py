"""The norms in torch: one file a norm, a pure function above and a thin module below.

Each is composed of ordinary torch operations, so it runs wherever they run and can be
differentiated any number of times.
"""

from normlab.layers.adaptive import AdaLN, adaptive_instance_norm
from normlab.layers.attention import QKNorm
from normlab.layers.batch import BatchNorm1d, BatchNorm2d, batch_norm
from normlab.layers.group import GroupNorm, group_norm
from normlab.layers.instance import InstanceNorm1d, InstanceNorm2d, instance_norm
from normlab.layers.layer import LayerNorm, layer_norm
from normlab.layers.length import ScaleNorm, scale_norm
from normlab.layers.masked import MaskedBatchNorm1d, masked_batch_norm
from normlab.layers.pointwise import Derf, DyT, derf, dyt
from normlab.layers.renorm import BatchRenorm1d, BatchRenorm2d, batch_renorm
from normlab.layers.response import (
    FilterResponseNorm,
    GlobalResponseNorm,
    filter_response_norm,
    global_response_norm,
)
from normlab.layers.rms import RMSNorm, prms_norm, rms_norm
from normlab.layers.validation import DtypeError, ShapeError
from normlab.layers.weights import weight_norm, weight_norm_init_, weight_standardization
from normlab.layers.zero_centered import ZeroCenteredRMSNorm, zero_centered_rms_norm

__all__ = [
    "AdaLN",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchRenorm1d",
    "BatchRenorm2d",
    "Derf",
    "DtypeError",
    "DyT",
    "FilterResponseNorm",
    "GlobalResponseNorm",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "LayerNorm",
    "MaskedBatchNorm1d",
    "QKNorm",
    "RMSNorm",
    "ScaleNorm",
    "ShapeError",
    "ZeroCenteredRMSNorm",
    "adaptive_instance_norm",
    "batch_norm",
    "batch_renorm",
    "derf",
    "dyt",
    "filter_response_norm",
    "global_response_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "masked_batch_norm",
    "prms_norm",
    "rms_norm",
    "scale_norm",
    "weight_norm",
    "weight_norm_init_",
    "weight_standardization",
    "zero_centered_rms_norm",
]
