"""The way of a call: to a kernel where one fits, else to the composition below the decorator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

from torch import Tensor

from normlab import kernels
from normlab.kernels.interception import is_plain_call

P = ParamSpec("P")


def routed(composition: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Let a kernel of `normlab.kernels` compute what it can; `composition` does the rest.

    Args:
        composition: a norm as operations of torch, which check their arguments.

    Returns:
        a function of the same arguments. The composition computes under `torch.func`, in forward
        mode, in `torch.export` and `torch.jit.trace`, under a mode of the dispatcher, whatever the
        kernels do not know, and wrong arguments, of which it says what is wrong.

    Conventions:
        under `torch.compile` the kernel is an operator of its own in the graph.
    """
    kernel = getattr(kernels, composition.__name__)

    @functools.wraps(composition)
    def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        if is_plain_call():
            y = kernel(*args, composition=composition, **kwargs)
            if y is not None:
                return y
        return composition(*args, **kwargs)

    return call
