"""The five norms at the speed of memory: functions and modules in the place of `normlab.layers`.

A layer is composed of operations, each of which reads and writes the whole tensor. A kernel reads
it once. Import the functions and modules from here for speed: they have the arguments, the state
dict and the derivatives of those in :mod:`normlab.layers`, which never call a kernel.

Each function takes the fastest back end that knows the device and the dtype: compiled loops on a
CPU where numba is installed (`normlab[kernels]`) and pieces that stay in the cache elsewhere, rows
in Triton on a GPU (`normlab[gpu]`). It calls the layer for what no kernel computes: other dtypes
and devices, a few elements without numba, a second derivative, `torch.func`, forward mode,
`torch.export`, `torch.jit.trace`, modes of the dispatcher, tensor subclasses, and wrong arguments,
of which the layer says what is wrong. Under `torch.compile` a kernel for a CPU is an operator of
its own in the graph.

:func:`backends` has the back ends by name. The sum before a norm and the activation behind it can
be computed with it (`add_layer_norm`, `rms_norm_silu` ...).
"""

import os as _os
from typing import NoReturn

from normlab.kernels.functions import (
    backends,
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from normlab.kernels.fused import (
    add_layer_norm,
    add_rms_norm,
    layer_norm_gelu,
    layer_norm_silu,
    rms_norm_gelu,
    rms_norm_silu,
)
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
    "layer_norm_gelu",
    "layer_norm_silu",
    "rms_norm",
    "rms_norm_gelu",
    "rms_norm_silu",
]

_REMEDY = (
    "no choice of kernels is kept by a process; normlab.layers computes with torch's operations "
    "alone. For speed import the layers from normlab.kernels, as in "
    "`from normlab.kernels import LayerNorm, layer_norm`, or call one back end by its name, as in "
    "normlab.kernels.backends()['chunked'].layer_norm"
)


def use(*_: object, **__: object) -> NoReturn:
    """Raise, with what to do instead of a choice for the whole process."""
    raise RuntimeError(f"kernels.use is gone: {_REMEDY}")


if "NORMLAB_KERNELS" in _os.environ:
    raise RuntimeError(f"NORMLAB_KERNELS is set and has no meaning: {_REMEDY}; unset it")
