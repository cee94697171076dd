"""What autograd keeps of a layer between the forward and the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def saved_bytes(function: Callable[..., Any], *args: Any) -> int:
    """Bytes that autograd keeps of one call besides the tensors it was given.

    Args:
        function: called once with `args`, of which every floating tensor gets a gradient.
        args: tensors and settings; the tensors are copied.

    Conventions:
        tensors that share memory count once.

    Example:
        >>> saved_bytes(torch.exp, torch.zeros(10))  # keeps its output, 10 numbers of 4 bytes
        40
    """
    given = [a.detach().clone().requires_grad_() if isinstance(a, Tensor) else a for a in args]
    own = {a.untyped_storage().data_ptr() for a in given if isinstance(a, Tensor)}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = function(*given)
    del result  # until here, so that no memory is used twice
    return sum(kept.values())
