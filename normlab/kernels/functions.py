"""The five norms by the fastest back end; the choice of a kernel is made in this file.

Each function has the arguments of its namesake in `normlab.layers`, and calls it for what no kernel
computes, and for wrong arguments, of which it says what is wrong.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor

from normlab import layers
from normlab.kernels import calls, chunked, numba_loops, operators, triton_rows
from normlab.kernels.differentiation import Kernels
from normlab.kernels.interception import is_plain_call, is_plain_graph

# for each type of device, the fastest first
_BACKENDS: dict[str, dict[str, ModuleType]] = {
    "cuda": {"triton": triton_rows},
    "cpu": {"numba": numba_loops, "chunked": chunked},
}


@functools.cache
def _runs(module: ModuleType) -> bool:
    """Whether a back end works on this machine; one that is installed and broken is named once."""
    try:
        module.kernels()
    except ModuleNotFoundError:
        return False
    except ImportError as error:
        if module is numba_loops:
            warnings.warn(str(error), RuntimeWarning, stacklevel=4)
        return False
    return True


def backends() -> Mapping[str, ModuleType]:
    """The back ends that can run here, the fastest first.

    Returns:
        name -> a module with the five norms, which raise NotImplementedError for what they do not
        know: "triton" where there is a GPU, "numba" where it is installed, and "chunked".

    Example:
        >>> chunked = backends()["chunked"]
        >>> chunked.rms_norm(torch.tensor([[3.0, 4.0]]), (2,), eps=0.0)
        tensor([[0.8485, 1.1314]])
    """
    return {
        name: module
        for device, found in _BACKENDS.items()
        if device == "cpu" or torch.cuda.is_available()
        for name, module in found.items()
        if _runs(module)
    }


@functools.cache
def fastest(device: str, dtype: torch.dtype) -> Kernels | None:
    """The fastest kernels on this machine that know a type of device and a dtype."""
    for module in _BACKENDS.get(device, {}).values():
        if _runs(module):
            kernels: Kernels = module.kernels()
            if dtype in kernels.dtypes:
                return kernels
    return None


def choose(input: Tensor) -> Kernels | None:
    """The kernels that compute a norm of this input, or None where the layer does."""
    if torch.compiler.is_compiling():
        # an operator, which asks for the fastest kernels when it runs; for a GPU the compiler has
        # kernels of its own
        return operators.KERNELS if is_plain_graph() else None
    if not isinstance(input, Tensor) or not is_plain_call():
        return None
    kernels = fastest("cpu" if input.is_cpu else input.device.type, input.dtype)
    return None if kernels is None or input.numel() < kernels.smallest else kernels


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """:func:`normlab.layers.layer_norm` by the fastest back end; see :mod:`normlab.kernels`."""
    if (kernels := choose(input)) is not None:
        y = calls.layer_norm(kernels, input, normalized_shape, weight, bias, eps)
        if not isinstance(y, str):
            return y
    return layers.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """:func:`normlab.layers.rms_norm` by the fastest back end; see :mod:`normlab.kernels`."""
    if (kernels := choose(input)) is not None:
        y = calls.rms_norm(kernels, input, normalized_shape, weight, eps)
        if not isinstance(y, str):
            return y
    return layers.rms_norm(input, normalized_shape, weight, eps)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """:func:`normlab.layers.batch_norm` by the fastest back end; see :mod:`normlab.kernels`."""
    rest = running_mean, running_var, weight, bias, training, momentum, eps
    if (kernels := choose(input)) is not None:
        y = calls.batch_norm(kernels, input, *rest)
        if not isinstance(y, str):
            return y
    return layers.batch_norm(input, *rest)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """:func:`normlab.layers.group_norm` by the fastest back end; see :mod:`normlab.kernels`."""
    if (kernels := choose(input)) is not None:
        y = calls.group_norm(kernels, input, num_groups, weight, bias, eps)
        if not isinstance(y, str):
            return y
    return layers.group_norm(input, num_groups, weight, bias, eps)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """:func:`normlab.layers.instance_norm` by the fastest back end; see :mod:`normlab.kernels`."""
    rest = running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    if (kernels := choose(input)) is not None:
        y = calls.instance_norm(kernels, input, *rest)
        if not isinstance(y, str):
            return y
    return layers.instance_norm(input, *rest)
