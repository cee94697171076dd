"""The five norms at the speed of memory: functions and modules in the place of `normlab.layers`.

A layer is composed of operations, each of which reads and writes the whole tensor. A kernel reads
it once. Import the functions and modules from here for speed: they have the arguments, the state
dict and the derivatives of those in :mod:`normlab.layers`, which never call a kernel.

Each function takes the fastest back end that knows the device and the dtype: compiled loops on a
CPU where numba is installed (`normlab[kernels]`), rows in Triton on a GPU (`normlab[gpu]`). It
calls the layer for what no kernel computes: other dtypes and devices, running statistics in
evaluation, a second derivative, `torch.func`, forward mode, `torch.export`, `torch.jit.trace`,
modes of the dispatcher, tensor subclasses, and wrong arguments, of which the layer says what is
wrong. Under `torch.compile` a kernel for a CPU is an operator of its own in the graph.

:func:`backends` has the back ends by name. The sum before a norm can be computed with it
(`add_layer_norm`, `add_rms_norm`).
"""

from normlab.kernels.choice import backends
from normlab.kernels.functions import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from normlab.kernels.fused import add_layer_norm, add_rms_norm
from normlab.kernels.modules import (
    BatchNorm1d,
    BatchNorm2d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    LayerNorm,
    RMSNorm,
)

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "LayerNorm",
    "RMSNorm",
    "add_layer_norm",
    "add_rms_norm",
    "backends",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "rms_norm",
]
