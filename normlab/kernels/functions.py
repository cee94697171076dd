"""The five norms by the fastest back end; the choice of a kernel is made in this file.

Each function has the arguments of its namesake in `normlab.layers`, and calls it for what no kernel
computes, and for wrong arguments, of which it says what is wrong.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Concatenate, ParamSpec

import torch
from torch import Tensor

from normlab import layers
from normlab.kernels import calls, chunked, numba_loops, operators, triton_rows
from normlab.kernels.differentiation import Kernels
from normlab.kernels.interception import is_plain_call, is_plain_graph

P = ParamSpec("P")
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


def choose(input: object) -> Kernels | None:
    """The kernels that compute a norm of this input, or None where the layer does."""
    if torch.compiler.is_compiling():
        # an operator, which asks for the fastest kernels when it runs; for a GPU the compiler has
        # kernels of its own
        return operators.KERNELS if is_plain_graph() else None
    if not isinstance(input, Tensor) or not is_plain_call():
        return None
    kernels = fastest("cpu" if input.is_cpu else input.device.type, input.dtype)
    if kernels is None or (kernels.smallest and input.numel() < kernels.smallest):
        return None
    return kernels


def by_the_fastest(
    layer: Callable[P, Tensor], norm: Callable[Concatenate[Kernels, P], Tensor | str]
) -> Callable[P, Tensor]:
    """A function of the arguments of `layer` that takes the fastest kernels, or calls the layer.

    Args:
        layer: a norm of `normlab.layers`.
        norm: the same by given kernels, as in `normlab.kernels.calls`.
    """

    @functools.wraps(layer)
    def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        kernels = choose(args[0] if args else kwargs.get("input"))
        if kernels is not None:
            y = norm(kernels, *args, **kwargs)
            if not isinstance(y, str):
                return y
        return layer(*args, **kwargs)

    call.__module__ = __name__
    call.__doc__ = (
        f":func:`normlab.layers.{layer.__name__}` by the fastest back end that knows the call; "
        "see :mod:`normlab.kernels`."
    )
    return call


layer_norm = by_the_fastest(layers.layer_norm, calls.layer_norm)
rms_norm = by_the_fastest(layers.rms_norm, calls.rms_norm)
batch_norm = by_the_fastest(layers.batch_norm, calls.batch_norm)
group_norm = by_the_fastest(layers.group_norm, calls.group_norm)
instance_norm = by_the_fastest(layers.instance_norm, calls.instance_norm)
