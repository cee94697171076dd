"""The norms in torch: one file a norm, a pure function above and a thin module below.

Each is composed of ordinary torch operations, so it runs wherever they run and can be
differentiated any number of times.
"""

from normlab.layers.batch import BatchNorm1d, BatchNorm2d, batch_norm
from normlab.layers.group import GroupNorm, group_norm
from normlab.layers.instance import InstanceNorm1d, InstanceNorm2d, instance_norm
from normlab.layers.layer import LayerNorm, layer_norm
from normlab.layers.masked import MaskedBatchNorm1d, masked_batch_norm
from normlab.layers.rms import RMSNorm, prms_norm, rms_norm
from normlab.layers.validation import DtypeError, ShapeError

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "DtypeError",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "LayerNorm",
    "MaskedBatchNorm1d",
    "RMSNorm",
    "ShapeError",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "masked_batch_norm",
    "prms_norm",
    "rms_norm",
]
