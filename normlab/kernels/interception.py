"""Whether something transforms, traces or intercepts a call, so that a kernel must stay out."""

from __future__ import annotations

import torch
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad


def is_plain_call() -> bool:
    """Whether tensors are what they seem: nothing transforms, traces or intercepts the call."""
    # torch.func shows its wrapped tensors as plain ones, and no public call tells them apart
    return not (
        forward_ad._current_level >= 0
        or peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
        or torch._C._is_tracing()
    )


def is_plain_graph() -> bool:
    """The same where `torch.compile` traces, which knows fewer questions."""
    # torch 2.11 says that it exports whenever it compiles, so its graphs hold the layer
    return not (
        forward_ad._current_level >= 0
        or torch._C._are_functorch_transforms_active()
        or torch.compiler.is_exporting()
    )
