"""One tensor that is filled anew between two calls without gradients, as a static buffer is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from normlab.checks.frozen import is_far


def fill_anew(call: Callable[[Tensor], Tensor], first: Tensor, second: Tensor, want: Tensor) -> str:
    """What is wrong where the input is changed in place; empty if nothing is.

    Args:
        call: the layer.
        first: numbers of the input at the first call.
        second: at the second call.
        want: what is right for these.
    """
    with torch.no_grad():
        x = first.clone()
        y = call(x)
        kept = y.clone()
        x.copy_(second)
        again = call(x).clone()
        alone = call(second.clone())
    if is_far(alone, want):
        return "the output without gradients is wrong"
    if not torch.equal(y, kept):
        return "without gradients, a second call writes into the output of the first"
    if is_far(again, want):
        return "the output is wrong for an input that was changed in place after a first call"
    return ""
