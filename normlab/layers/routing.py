"""The way of a call: to a kernel where one fits, else to the composition below the decorator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from normlab import kernels

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
        if _plain_call():
            y = kernel(*args, composition=composition, **kwargs)
            if y is not None:
                return y
        return composition(*args, **kwargs)

    return call


def _plain_call() -> bool:
    """Whether tensors are what they seem: nothing transforms, traces or intercepts the call."""
    # torch.func shows its wrapped tensors as plain ones, and no public call tells them apart;
    # the first of the two answers is the faster, the second is known to torch.compile
    if forward_ad._current_level >= 0:
        return False
    if torch.compiler.is_compiling():
        return not (torch._C._are_functorch_transforms_active() or torch.compiler.is_exporting())
    return not (
        peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
        or torch._C._is_tracing()
    )
