"""The five norms by the fastest back end.

Each function has the arguments of its namesake in `normlab.layers`, and calls it for what no kernel
computes, and for wrong arguments, of which it says what is wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec

import torch
from torch import Tensor

from normlab import layers
from normlab.kernels import calls, choice, operators
from normlab.kernels.differentiation import Kernels
from normlab.kernels.interception import is_plain_call, is_plain_graph

P = ParamSpec("P")


def choose(input: object) -> Kernels | None:
    """The kernels that compute a norm of this input, or None where the layer does."""
    if not isinstance(input, Tensor):
        return None
    if torch.compiler.is_compiling():
        # operators, which ask for the kernels when they run; for a GPU the compiler has kernels of
        # its own
        known = operators.KERNELS if is_plain_graph() else None
        return known if known and input.dtype in operators.known_dtypes() else None
    if not is_plain_call():
        return None
    return choice.find("cpu" if input.is_cpu else input.device.type, input.dtype)


def dispatched(
    layer: Callable[P, Tensor], norm: Callable[Concatenate[Kernels, P], Tensor]
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
            try:
                return norm(kernels, *args, **kwargs)
            except calls.Unknown:
                pass
        return layer(*args, **kwargs)

    call.__module__ = __name__
    call.__doc__ = (
        f":func:`normlab.layers.{layer.__name__}` by the fastest back end that knows the call; "
        "see :mod:`normlab.kernels`."
    )
    return call


layer_norm = dispatched(layers.layer_norm, calls.layer_norm)
rms_norm = dispatched(layers.rms_norm, calls.rms_norm)
batch_norm = dispatched(layers.batch_norm, calls.batch_norm)
group_norm = dispatched(layers.group_norm, calls.group_norm)
instance_norm = dispatched(layers.instance_norm, calls.instance_norm)
